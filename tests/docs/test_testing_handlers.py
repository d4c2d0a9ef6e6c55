"""What docs/testing.md shows is run as it stands: its tests pass, and what it says is printed is printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from tests.plugins.spark import Workplace

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/testing.md").read_text()
_FILE = re.compile(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```", re.DOTALL)
_RUN = re.compile(r"<!-- run -->\n```\n(.*?)\n```", re.DOTALL)
_ERROR = re.compile(r"<!-- error -->\n```\n(.*?)\n```", re.DOTALL)
_OUTPUT = re.compile(r"<!-- output: python (\S+) -->\n```\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def folder(workplace: Workplace) -> Path:
    """Give a folder with the files that the page and the README show."""
    for name, text in _FILE.findall((ROOT / "README.md").read_text() + PAGE):
        (workplace.path / name).write_text(text)
    return workplace.path


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.thorough
def test_its_tests_pass(folder):
    said = run(folder, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_raffle.py")

    assert "5 passed" in said


def test_its_failure_is_told_as_it_says(folder):
    ((program, said),) = _OUTPUT.findall(PAGE)

    assert run(folder, sys.executable, program) == said


@pytest.mark.thorough
def test_its_batch_under_guard_ends_as_it_says(folder, workplace):
    (command,), (error,) = _RUN.findall(PAGE), _ERROR.findall(PAGE)
    program, *arguments = shlex.split(command)

    assert program == "consistent"
    done = workplace.consistent(*arguments)

    assert done.returncode == 0, done.stdout + done.stderr
    files = sorted((folder / "letters").rglob("*.parquet"))
    rows = [row for file in files for row in pyarrow.parquet.ParquetFile(file).read().to_pylist()]
    assert [(row["reason"], row["error"]) for row in rows] == [("handler_error", error)]
