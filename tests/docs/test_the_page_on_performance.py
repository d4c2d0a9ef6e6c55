"""What docs/performance.md says of rows and requests is what a game in batches costs."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import text
from tests.docs.played import Cost, play

PAGE = re.sub(r"(?<=\w)\n(?=\w)", " ", text("docs/performance.md"))
ACCOUNT, PARTITION = 20_000, 2_000
HISTORIES = {1: 1200, 50: 60, 1000: 20}
"""How many batches of how many messages are played."""


def shown(label: str) -> list[float]:
    """Return the figures of runs in a line of the table."""
    (line,) = re.findall(rf"^\| {re.escape(label)} \|[^|]+\|(.*)\|$", PAGE, re.MULTILINE)
    return [float(cell.replace(",", "")) for cell in line.split("|")]


@pytest.mark.thorough
def test_its_table_has_what_such_games_cost():
    per_message = []
    for size, batches in HISTORIES.items():
        costs = play([size] * batches)[1]
        per_message.append([sum(column) / (size * batches) for column in zip(*costs, strict=True)])
    requests, read, written = zip(*per_message, strict=True)
    rows = [one + other for one, other in zip(read, written, strict=True)]

    assert shown("rows written for a message") == pytest.approx(written, rel=0.02)
    assert shown("rows read and written for a message") == pytest.approx(rows, rel=0.02)
    for label, limit in (("an account", ACCOUNT), ("one stream", PARTITION)):
        rates = [limit / each for each in rows]
        assert shown(f"messages/s of {label} of {limit:,} rows/s") == pytest.approx(rates, rel=0.03)
    # Two hashes of four bytes that are equal by chance cost a query: in about one game of 20,000 messages of twenty.
    assert shown("requests for a million messages") == pytest.approx(
        [each * 1_000_000 for each in requests], rel=0.06
    )


@pytest.mark.parametrize(("size", "versions"), [(1, 151), (50, 450)])
def test_the_tail_holds_as_many_versions_as_it_says(size, versions):
    costs = play([size] * 200)[1]
    first_run = next(number for number, cost in enumerate(costs) if cost.rows_written == 3)

    assert first_run * size == versions
    assert all(cost.rows_written == 1 for cost in costs[:first_run])
    assert f"{versions} versions that came one by one" in PAGE or f"{versions} that came in fifties" in PAGE


@pytest.mark.parametrize(("messages", "rows_written"), [(400, 1), (401, 3), (8192, 3), (10_000, 4)])
def test_a_batch_writes_as_many_rows_as_it_says(messages, rows_written):
    assert play([messages])[1] == [Cost(requests=2, rows_read=0, rows_written=rows_written)]
