"""A user's modules with the names of this project's packages: named before Spark starts, and otherwise harmless."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.folder import REPOSITORY, Folder

RUN = [
    *("run", "--app", "bank:app", "--messages", "log.jsonl", "--store", "sqlite:///store.db", "--table", "bank"),
    *("--out", "outcomes", "--master", "local[2]"),
]  # fmt: skip


@pytest.mark.parametrize("command", [RUN, ["lint", "bank:app"], ["lint", "bank.py"], ["lint", "handlers.py"]])
def test_handlers_in_a_file_of_that_name(tmp_path: Path, command):
    folder = Folder.make(tmp_path)
    (tmp_path / "handlers.py").write_text("from bank import Account")

    done = folder.consistent(*command)

    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr == (
        f"Error: {tmp_path}/handlers.py has the same name as a package of consistent-messaging (eventstore, handlers, "
        f"runtime, samples), so Python can import only one of them: rename it, for example to my_handlers.py.\n"
    )


@pytest.mark.parametrize("file", ["eventstore.py", "handlers.py", "handlers/__init__.py", "samples/data.txt"])
def test_a_path_on_which_such_a_module_comes_first(tmp_path: Path, file):
    path = tmp_path / "modules" / file
    path.parent.mkdir(parents=True)
    path.write_text("")

    done = subprocess.run(
        [sys.executable, "-m", "runtime", "--help"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'modules'}{os.pathsep}{REPOSITORY}"},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    if file.startswith("samples"):  # no module: Python takes the package that comes later
        assert done.returncode == 0, done.stderr
        return
    assert (done.returncode, done.stdout) == (2, "")
    named = path.parent if path.stem == "__init__" else path
    assert done.stderr.startswith(f"Error: {named} has the same name as a package of consistent-messaging")
    assert done.stderr.count("\n") == 1


@pytest.mark.thorough
def test_workers_find_python_and_these_packages_first(tmp_path: Path):
    folder = Folder.make(tmp_path)
    (tmp_path / "calendar.py").write_text("raise RuntimeError('this is not the calendar')")
    for name in ("handlers", "runtime", "samples"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "readme.txt").write_text("no module")

    done = folder.consistent(*RUN)

    assert done.returncode == 0, done.stderr
    assert "9" in done.stdout
