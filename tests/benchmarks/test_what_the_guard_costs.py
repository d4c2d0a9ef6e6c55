"""A comparison with and without guard that is as small as can be, run as `make bench-guard` runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_log_is_folded_with_guard_and_without():
    command = [sys.executable, "-m", "benchmarks.guard", "--messages", "50", "--turns", "1"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"with guard / without: \d+\.\d{3} \(median of 1 turns\)\n", done.stdout)
