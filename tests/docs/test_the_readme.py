"""What the README shows is run as it stands: its files, its commands, its code."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.cli.apps import load_app
from tests.plugins.spark import Workplace

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
_FILE = re.compile(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```", re.DOTALL)
_COMMANDS = re.compile(r"<!-- run -->\n```\n(.*?)```", re.DOTALL)


def commands() -> list[str]:
    return [line for block in _COMMANDS.findall(README) for line in block.splitlines()]


@pytest.fixture(scope="module")
def folder(workplace: Workplace) -> Workplace:
    """Give a folder with the files that the README shows."""
    for name, text in _FILE.findall(README):
        (workplace.path / name).write_text(text)
    return workplace


def consistent(folder: Workplace, command: str, *more: str) -> str:
    program, *arguments = shlex.split(command)
    assert program == "consistent"
    done = folder.consistent(*arguments, *more)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_its_commands_do_what_it_says(folder):
    assert [shlex.split(command)[1] for command in commands()] == [
        "lint",
        "run",
        "outcomes",
        "batches",
        "show",
        "truncate",
        "streams",
    ]

    # The commands run one after another, and the versions and the winner are as the text says
    for command in commands():
        consistent(folder, command)
    shown = json.loads(consistent(folder, commands()[4], "--json"))
    assert len(shown["versions"]) == 4
    assert "published" in consistent(folder, commands()[3])
    assert len(json.loads(consistent(folder, commands()[2], "--json"))["published"]) == 1

    # ... and the outcomes are those of seven deliveries
    import pyarrow.parquet

    files = sorted((folder.path / "outcomes").rglob("*.parquet"))
    rows = [row for file in files for row in pyarrow.parquet.ParquetFile(file).read().to_pylist()]
    assert sorted(row["status"] for row in rows) == ["duplicate"] * 3 + ["processed"] * 4
    won = [output for row in rows for output in row["outputs"]]
    assert len(won) == 1
    assert json.loads(won[0]["body"])["name"] in {"Ada", "Grace"}


def test_its_tests_pass(folder):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_winner.py"],
        cwd=folder.path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_its_notebook_code_runs(folder, capsys):
    (code,) = [block for block in python_blocks() if "run_batch" in block]
    code = code.replace("raffle.db", "other.db").replace('"outcomes"', '"others"')
    with folder.at_work():
        exec(code, {"app": load_app("raffle:app")})
    assert "Won" in capsys.readouterr().out


def test_its_handler_is_twenty_lines_of_code():
    (handler,) = [text for name, text in _FILE.findall(README) if name == "raffle.py"]
    assert sum(1 for line in handler.splitlines() if line.strip()) <= 24


def test_the_make_targets_it_names_exist():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = set(re.findall(r"make ([a-z-]+)", README))
    assert named <= set(targets)
    assert {"demo", "test", "help"} <= named


def python_blocks() -> Iterator[str]:
    yield from re.findall(r"```python\n(.*?)```", README, re.DOTALL)
