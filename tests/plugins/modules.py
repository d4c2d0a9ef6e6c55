"""Modules of a folder of a test are forgotten with the tests of its file: those of another may have the same names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="module")
def _modules_of_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield
    forget_modules(tmp_path_factory.getbasetemp())


def forget_modules(folder: Path) -> None:
    """Let the modules that were imported from a folder be imported anew."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(f"{folder}{os.sep}"):
            del sys.modules[name]
