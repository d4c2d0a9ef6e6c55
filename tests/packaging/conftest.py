"""The distributions, built once for all tests."""

from pathlib import Path

import pytest

from tests.packaging.building import build, copy_tree, unpacked


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_tree(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="session")
def sdist(tree: Path) -> Path:
    return build("sdist", tree)


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", unpacked(sdist, tmp_path_factory.mktemp("wheel")))
