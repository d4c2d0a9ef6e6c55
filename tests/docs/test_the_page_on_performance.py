"""What docs/performance.md says of rows and requests is what a game of the ShootingRange costs, played in batches."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pytest

from benchmarks.algorithms.play import ONE_GAME, MeteredTable, shots, ticking_clock
from benchmarks.games import game_id
from eventstore import Operation, drive
from handlers import App
from runtime.algorithms.choice import Dependencies, make_batch_algorithms
from runtime.ledger.batch import BatchContext
from runtime.messages.parsing import prepare
from runtime.versions.limits import MAX_STATE_BYTES
from samples.shooting_range.handlers import ShootingRange
from tests.docs.pages import text

GAME, thorough = game_id(0), pytest.mark.thorough


class Cost(NamedTuple):
    requests: int
    rows_read: int
    rows_written: int


class RowMeter(MeteredTable):
    rows_written = 0

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        self.rows_written += len(operations)
        return await super().transact(partition_key, operations)


def play(sizes: Iterable[int]) -> list[Cost]:
    """Process batches of these sizes, and return the cost of each."""
    table, app, clock = RowMeter(), App(ShootingRange), ticking_clock()
    (handler,) = app.handlers.values()
    costs: list[Cost] = []
    played = 0
    for batch, size in enumerate(sizes):
        context = BatchContext(f"20260101T000000-{batch:06}")
        given = Dependencies(app, table, table, clock=clock, batch=context)
        (algorithm,) = make_batch_algorithms("state-based", given).values()
        messages = shots(range(played, played + size), ONE_GAME)
        before = Cost(table.requests, table.rows_read, table.rows_written)
        drive(algorithm.process(GAME, [prepare(handler, GAME, each) for each in messages]))
        after = Cost(table.requests, table.rows_read, table.rows_written)
        costs.append(Cost(*(now - then for now, then in zip(after, before, strict=True))))
        played += size
    return costs


PAGE = re.sub(r"(?<=\w)\n(?=\w)", " ", text("docs/performance.md"))
ACCOUNT, PARTITION = 20_000, 2_000
HISTORIES = {1: 1200, 3: 400, 50: 60, 1000: 20}
"""How many batches of how many messages are played."""


def shown(label: str) -> list[float]:
    """Return the figures of runs in a line of the table."""
    (line,) = re.findall(rf"^\| {re.escape(label)} \|[^|]+\|(.*)\|$", PAGE, re.MULTILINE)
    return [float(cell.replace(",", "")) for cell in line.split("|")]


@thorough
def test_its_table_has_what_such_games_cost():
    per_message = []
    for size, batches in HISTORIES.items():
        costs = play([size] * batches)
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


@pytest.mark.parametrize(("size", "versions"), [(1, 60), pytest.param(50, 150, marks=thorough)])
def test_the_tail_holds_as_many_versions_as_it_says(size, versions):
    costs = play([size] * 200)
    first_run = next(number for number, cost in enumerate(costs) if cost.rows_written == 3)

    assert first_run * size == versions
    assert all(cost.rows_written == 1 for cost in costs[:first_run])
    assert f"{versions} versions that came {'one by one' if size == 1 else 'in fifties'}" in PAGE


@pytest.mark.parametrize(
    ("messages", "rows_written"),
    [(400, 1), (401, 3), *(pytest.param(*each, marks=thorough) for each in [(8192, 3), (10_000, 4)])],
)
def test_a_batch_writes_as_many_rows_as_it_says(messages, rows_written):
    assert play([messages]) == [Cost(requests=2, rows_read=0, rows_written=rows_written)]


def test_the_page_on_sizing_has_its_figures():
    page = " ".join(text("docs/how-to/sizing-and-cost.md").split())
    rows = re.findall(r"^\| requests, new message .*?\| (.*) \|$", text("docs/algorithms.md"), re.MULTILINE)
    requests = [int(cell) for row in rows for cell in row.split(" | ")]
    daily, hourly, single = (2 * 30 * each for each in (20_000, 24 * 20_000, 1_000_000))

    for sentence in (
        f"A state is limited to {MAX_STATE_BYTES // 1024} KiB",
        f"take {min(requests)} to {max(requests)} requests for a new message",
        f"need {daily:,} requests a month as daily batches, {hourly:,} as hourly ones, and {single:,} one by one",
    ):
        assert sentence in page
