"""A module in the working directory takes the place of none of Python's, of a package's or of ours; apps are found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.spark.session import _settings

PLANTED = ("socketserver", "json", "queue", "pyarrow", "pandas", "runtime", "eventstore")
_ENVIRONMENT = "spark.executorEnv."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in PLANTED:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a planted module was run')")
    (tmp_path / "raffle.py").write_text("FOUND = True")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_worker_of_spark_finds_apps_there_and_nothing_else(folder):
    settings = _settings("local[1]", {})
    given = {
        name.removeprefix(_ENVIRONMENT): value
        for name, value in settings.items()
        if name.startswith(_ENVIRONMENT)
    }
    script = f"import {', '.join(PLANTED)}, raffle; print(raffle.FOUND)"

    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        env={**os.environ, **given},
        cwd=folder,
        text=True,
        capture_output=True,
    )

    assert done.stdout == "True\n", done.stderr


def test_the_path_of_an_app_ends_with_the_working_directory(folder):
    path = _settings("local[1]", {})[f"{_ENVIRONMENT}PYTHONPATH"].split(os.pathsep)

    assert path.index(str(folder)) == len(path) - 1
