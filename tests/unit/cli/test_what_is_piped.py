"""In a pipe, and with a number of one, text is what a program and a person expect."""

import subprocess
import sys
from pathlib import Path

import pytest

from runtime.cli.console import counted

REPOSITORY = Path(__file__).parents[3]


def test_a_table_keeps_ids_whole(store, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "runtime", "streams", "--store", store, "--table", "games"],
        env={"PYTHONPATH": str(REPOSITORY)}, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [line.split() for line in done.stdout.splitlines()[3:]]

    assert [len(row[1]) for row in rows] == [36] * 3


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "run", "0 runs"),
        (1, "run", "1 run"),
        (1200, "delivery", "1,200 deliveries"),
        (1, "delivery", "1 delivery"),
    ],
)
def test_one_is_singular(number, noun, text):
    assert counted(number, noun) == text


@pytest.mark.thorough
def test_a_service_that_does_not_answer_is_said_and_nothing_else(tmp_path):
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore", "-m", "runtime", "streams",
         "--store", "azurite://127.0.0.1:9", "--table", "games"],
        env={"PYTHONPATH": str(REPOSITORY)}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "Unclosed" not in done.stderr
