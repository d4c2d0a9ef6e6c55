"""The cells of docs/jupyter.md are executed in a kernel, one after another, as a notebook's are."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.pasting import bare_environment, marked, paste, write_files
from tests.packaging.environment import Environment

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]

PAGE = "docs/jupyter.md"
EXECUTE = """
import json, sys
import nbformat
from nbclient import NotebookClient

cells = [nbformat.v4.new_code_cell(cell) for cell in json.load(open("cells.json"))]
notebook = nbformat.v4.new_notebook(cells=cells)
NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
json.dump([cell.outputs for cell in notebook.cells], open("outputs.json", "w"))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a Python with a kernel for notebooks that finds what is installed here too."""
    folder = tmp_path_factory.mktemp("kernel")
    made = Environment(folder)
    made.install("ipykernel", "nbclient")
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "installed.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    return made.python


def shown(outputs: list[dict[str, object]]) -> str:
    """Return what a cell prints and shows, what Spark says left out."""
    return json.dumps([each for each in outputs if each.get("name") != "stderr"])


def test_its_cells_do_what_it_says(python, tmp_path):
    folder = tmp_path / "notebook"
    folder.mkdir()
    write_files("README.md", folder)
    (folder / "cells.json").write_text(json.dumps(marked(PAGE, "cell")))
    (folder / "execute.py").write_text(EXECUTE)
    environment = {**bare_environment(), "HOME": str(tmp_path)}

    paste(f"{python} execute.py", folder, environment)

    batch, tried, single, _ = map(shown, json.loads((folder / "outputs.json").read_text()))
    assert "Won" in batch
    assert (tried.count("processed"), tried.count("duplicate")) == (4, 2)  # as text and as HTML
    assert "Won" in single
    assert "processed 5" in single
