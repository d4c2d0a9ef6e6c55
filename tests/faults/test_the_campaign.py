"""A slice of the campaign: batches that are killed end as undisturbed ones, but not where a mistake is planted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.__main__ import MISTAKES, PAGE, PARTS, read_pages
from tests.support.campaigns import ROOT, Record, section


def campaign(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.faults", "--results", str(folder), "--dry", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        check=False,
    )


def record_of(folder: Path, part: str) -> Record:
    return Record.read(folder / "seed-1" / f"{part}.json")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("part", "share", "kills", "more"),
    [
        ("batches", 0.0015, 13, []),
        *[(name, 0.01, part.goal / 100, []) for name, part in PARTS.items() if name != "batches"],
        # Outcomes are copied into place as on an object store.
        ("batches", 0.003, 27, ["--copy"]),
        ("rivals", 0.04, 12, ["--copy"]),
    ],
)
def test_batches_that_are_disturbed_end_as_undisturbed_ones(tmp_path, part, share, kills, more):
    ended = campaign(tmp_path, "--only", part, "--share", str(share), *more)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    record = record_of(tmp_path, part)
    assert record.kills.total() >= kills
    assert (record.differing, record.differences) == (0, [])


@pytest.mark.thorough
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(tmp_path, mistake):
    # It shows after a kill at certain moments only: the campaign goes on until there was one.
    for share in ("0.006", "0.02", "0.05"):
        ended = campaign(tmp_path, "--only", "batches", "--share", share, "--mistake", mistake)
        differing = record_of(tmp_path, "batches").differing
        assert ended.returncode == (1 if differing else 0), ended.stderr
        if differing:
            break

    assert differing > 0


IN_PART = {"executors": 0.25, "azurite-killed": 0.3, "postgresql-executors": 0.3}
"""The parts that the page shows a share of."""


def test_the_page_shows_what_the_campaign_has_done():
    rows = [row for row in section("totals", PAGE).splitlines() if row.startswith("| `")]

    assert [row.split("`")[1] for row in rows] == list(PARTS)
    for name, record in read_pages().items():
        assert record.kills.total() >= PARTS[name].goal * IN_PART.get(name, 1)
