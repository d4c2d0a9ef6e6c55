"""The distributions, built once for all tests."""

from pathlib import Path

import pytest

from tests.packaging.building import build_sdist, build_wheel, copy_tree


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_tree(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="session")
def sdist(tree: Path) -> Path:
    return build_sdist(tree)


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(sdist, tmp_path_factory.mktemp("wheel"))
