"""The figures of docs/side-effects.md are those of the code."""

import re

import pytest

from benchmarks.side_effects.__main__ import COLUMNS
from benchmarks.side_effects.counting import drivers
from handlers.context import MAX_BYTES, MAX_DOCUMENTS
from runtime.versions import limits
from tests.docs.pages import text
from tests.docs.pasting import beside_the_project, paste, write_files

PAGE = text("docs/side-effects.md")
WORDS = " ".join(PAGE.split())
SOURCE = text("samples/invoices.py")


@pytest.mark.thorough
def test_its_programs_run(tmp_path):
    write_files("docs/side-effects.md", tmp_path)

    printed = paste("python labels.py", tmp_path, beside_the_project())

    assert printed.splitlines() == ["Shipped True"]


def test_its_handler_is_that_of_the_sample():
    (shown,) = re.findall(r"```python\n(@handles.*?)```", PAGE, re.DOTALL)

    lines = [line.strip() for line in SOURCE.splitlines()]
    assert [line for line in shown.splitlines() if line.strip() not in lines] == []


def test_its_limits_are_those_of_the_code():
    assert (
        f"up to {limits.MAX_TRANSACTION_DOCUMENTS} documents or {limits.MAX_TRANSACTION_DOCUMENT_BYTES >> 20} MiB"
        in WORDS
    )
    assert f"has up to {MAX_DOCUMENTS} documents of up to {MAX_BYTES >> 20} MiB together" in WORDS


def test_its_table_says_that_nothing_was_lost_or_left(tmp_path):
    rows = re.findall(r"^\| one .*\|$", PAGE, re.MULTILINE)
    assert len(rows) == 4
    kills = 0
    for row in rows:
        counts = dict(zip(COLUMNS, row.strip("| ").split(" | ")[1:], strict=True))
        kills += int(counts["kills"])
        assert [counts[name] for name in COLUMNS[-3:]] == ["0", "0", "0"]
    assert kills >= 200


@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_a_batch_whose_drivers_are_killed_leaves_nothing_wrong_either():
    counts = drivers(["committing 2", "Round 0: recording in the ledger"])

    assert counts.is_right
    assert (counts.kills, counts.announced) == (2, counts.orders)
    assert counts.swept > 0
