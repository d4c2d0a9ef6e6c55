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


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_its_example_runs_with_each_algorithm(algorithm, tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    code = code.replace('algorithm="tokens"', f'algorithm="{algorithm}"')

    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith("Hit")]
    assert lines == ["processed", "duplicate", "0 messages were left unfinished"]
    assert done.stdout.startswith("Hit ")


def test_its_limits_are_those_of_the_code():
    assert f"{MAX_STATE_BYTES // 1024} KiB and" in PAGE
    assert f"{MAX_OUTBOX_BYTES // 1024} KiB" in PAGE


def test_it_names_every_algorithm():
    assert all(f"| `{algorithm}` |" in PAGE for algorithm in ALGORITHMS)
