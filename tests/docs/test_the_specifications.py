"""TLC finds what docs/tla says: a slice of `scripts/check_tla.py`, and the page lists all that there is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import classes, defined

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "tla"
PAGE = (FOLDER / "README.md").read_text()
NAMES = sorted(path.stem for path in FOLDER.glob("*.cfg"))
RESULTS = {
    "_".join(filter(None, [specification, name])): violated
    for specification, row in re.findall(r"^\| `(\w+)` \| (\d.*) \|$", PAGE, re.MULTILINE)
    for name, violated in re.findall(r"(?:^|(?:; |\| ))(?:(\w+?):? )?(?:`(\w+)`|[\d,]+)", row)
}
"""The configurations, each with the invariant that it violates, or with none."""
WITH_MISTAKE = [name for name in NAMES if 'Mistake = "none"' not in (FOLDER / f"{name}.cfg").read_text()]


def expected(name: str) -> str:
    violated = re.match(r"\\\* Must fail: (\w+)\.$", (FOLDER / f"{name}.cfg").read_text(), re.MULTILINE)
    return violated[1] if violated else ""


@pytest.mark.thorough
def test_tlc_finds_what_is_expected():
    results = {
        "PrepareCommitPublish_WithoutCrashes": "holds",
        "StateBased_AppendWithoutCAS": "violates AtMostOneStateChange",
        "TokenBased_NoCheckpoint": "violates ConsistentOutput",
    }
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "check_tla.py", *results],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    for name, found in results.items():
        assert f"{name}: {found}, as expected" in done.stdout


def test_the_table_lists_every_configuration_and_says_that_all_did_what_is_expected():
    assert {name: expected(name) for name in NAMES} == RESULTS
    assert "but expected" not in PAGE
    for family in (name for name in NAMES if "_" not in name):
        assert sum(name.startswith(f"{family}_") for name in WITH_MISTAKE) >= 3


def test_the_steps_of_the_code_that_it_names_exist():
    table = PAGE.partition("| specification | action | code |")[2].partition("\n\n")[0]
    named = [
        name for line in table.splitlines() for name in re.findall(r"`([\w.]+)`", line.rpartition("| ")[2])
    ]
    known = set(classes()).union(*classes().values(), defined("runtime"))

    assert {part for name in named for part in name.split(".")} <= known


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_checks_everything_or_names_an_invariant_that_its_mistake_violates(name):
    text, family = (FOLDER / f"{name}.cfg").read_text(), FOLDER / name.partition("_")[0]
    specification, without = family.with_suffix(".tla").read_text(), family.with_suffix(".cfg").read_text()
    (mistake,) = re.findall(r'Mistake = "([^"]+)"', text)

    if name in WITH_MISTAKE:
        assert f"INVARIANTS\n    {expected(name)}\n" in text
        assert f"    {expected(name)}\n" in without
        assert f'"{mistake}"' in specification
        return
    assert text.startswith("\\* Must hold.\n")
    assert len(re.findall(r"^PROPERTIES\n    Every(?:Message|Batch)Is\w+$", text, re.MULTILINE)) == 1
    for invariant in re.findall(r"^    (\w+)$", text, re.MULTILINE):
        assert re.search(rf"^{invariant} ==", specification, re.MULTILINE)
