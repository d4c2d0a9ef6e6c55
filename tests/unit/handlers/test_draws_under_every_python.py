"""Draws are the same under every Python: those written down are compared under each that can be found here."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAM = HERE / "golden_draws.py"
GOLDEN = HERE / "golden_draws.json"
DRAWS = Path(__file__).parents[3] / "handlers" / "draws.py"

OLDEST = (3, 11)
NEWEST_LOOKED_FOR = 20


def pythons() -> list[str]:
    """Return this interpreter, and each newer one on the path that starts: a name may lead nowhere."""
    names = [f"python3.{minor}" for minor in range(OLDEST[1], NEWEST_LOOKED_FOR)]
    found = [path for path in map(shutil.which, names) if path and starts(path)]
    return list(dict.fromkeys([sys.executable, *found]))


def starts(path: str) -> bool:
    return subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("python", pythons())
@pytest.mark.parametrize("hash_seed", ["0", "7"])
def test_it_draws_what_is_written_down(python, hash_seed):
    # -S leaves out all packages that are installed: the module stands alone.
    done = subprocess.run(
        [python, "-S", PROGRAM, DRAWS, GOLDEN],
        env={"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "draws the same" in done.stdout
