"""What docs/algorithms.md shows is run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.algorithms.entity import MAX_OUTBOX_BYTES
from runtime.part import MAX_STATE_BYTES
from tests.unit.runtime.algorithms.world import ALGORITHMS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "algorithms.md").read_text()


EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run(code: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_its_first_example_runs_with_each_algorithm(algorithm, tmp_path):
    lines = run(EXAMPLES[0].replace('algorithm="tokens"', f'algorithm="{algorithm}"'), tmp_path)

    assert lines[0].startswith("Hit ")
    others = [line for line in lines if not line.startswith("Hit ")]
    assert others == ["processed", "duplicate", "0 messages were left unfinished"]


def test_its_example_of_documents_runs(tmp_path):
    assert run(EXAMPLES[1], tmp_path) == ["Hit b'Well done!'", "processed"]


def test_its_example_of_deliveries_runs(tmp_path):
    assert run(EXAMPLES[2], tmp_path) == ["Dear customer!", "sent True", "filtered True"]


def test_its_limits_are_those_of_the_code():
    assert f"{MAX_STATE_BYTES // 1024} KiB and" in PAGE
    assert f"{MAX_OUTBOX_BYTES // 1024} KiB" in PAGE


def test_it_names_every_algorithm():
    assert all(f"| `{algorithm}` |" in PAGE for algorithm in ALGORITHMS)
