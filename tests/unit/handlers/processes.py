"""Running a piece of Python in a process of its own, with another hash seed, folder and time zone."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


def run_python(
    code: str, *arguments: str, hash_seed: int, folder: Path | None = None, time_zone: str = "UTC"
) -> str:
    """Return what the code printed."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONHASHSEED": str(hash_seed),
        "TZ": time_zone,
    }
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        cwd=folder or REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
