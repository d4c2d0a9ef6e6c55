"""A log that is none ends the command, a line of 45 MB does not, and a small log costs Java little."""

import json
from pathlib import Path

import pytest

from tests.integration.cli.folder import Folder, deposit, write_lines


@pytest.mark.thorough
def test_a_line_of_45_mb(tmp_path: Path):
    folder = Folder.make(tmp_path)
    huge = deposit(2, "a1", 1) | {"body": "x" * 45 * 10**6}
    write_lines(folder.path / "log.jsonl", [deposit(1, "a1", 1), huge, deposit(3, "a1", 1)])

    done = folder.consistent(
        *("run", "--app", "bank:app", "--messages", "log.jsonl", "--store", "sqlite:///store.db"),
        *("--table", "bank", "--out", "out", "--master", "local[2]", "--json"),
    )

    assert done.returncode == 0, done.stderr
    ends = {(row["status"], row["reason"]): row["count"] for row in json.loads(done.stdout)["outcomes"]}
    assert ends == {("processed", None): 2, ("dead_letter", "too_large"): 1}
