from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from eventstore.limits import MAX_OPERATIONS, MAX_PROPERTIES
from eventstore.port import PAGE_SIZE

DOCUMENT = (Path(__file__).parents[3] / "docs" / "event-store.md").read_text()


def test_the_example_runs(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)

    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("someone else was first: read again, decide again\n", "")
    assert (tmp_path / "orders.db").is_file()


def test_the_limits_are_those_of_the_code():
    assert f"{MAX_OPERATIONS} operations" in DOCUMENT
    assert f"{MAX_PROPERTIES} properties" in DOCUMENT
    assert f"{PAGE_SIZE:,} rows" in DOCUMENT
