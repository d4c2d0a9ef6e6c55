"""A stream that is written or cut between two pages is given as one of its moments was, each version once."""

from collections.abc import Awaitable, Callable

import pytest

from eventstore import InterceptedTable, Operation, Page, Table, drive
from runtime.algorithms.state_based.truncation import TruncationChoices, truncate_stream
from runtime.errors import StoredDataError
from runtime.ledger.batch import OpenBatches
from runtime.tables.reader import Request, TableKind
from runtime.tables.streams import StreamQuery
from tests.unit.runtime.diary import DIARY, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.table_reading.random_worlds import small_limits
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker

LINES = 30


class ByTwos(InterceptedTable):
    """A table whose pages have two rows; once, between two of them, something happens."""

    def __init__(self, table: Table, pages: int, happens: Callable[[], Awaitable[object]]) -> None:
        super().__init__(table)
        self._pages, self._happens = pages, happens

    async def scan(self, row_key, first="", last=None, *, select=None, continuation=None):
        if self.counts["scan"] == self._pages:
            await self._happens()
        whole = await super().scan(row_key, first, last, select=select)
        left = [row for row in whole.rows if row.row_key > (continuation or "")]
        return Page(tuple(left[:2]), left[1].row_key if len(left) > 2 else None)


@pytest.fixture
def table() -> Table:
    table = memory_table()
    with small_limits():
        for number in range(LINES):
            worker = Worker(table, clock=ToldClock(NOW + number), batch="done")
            worker.process(write(f"line {number}", enqueued_at=NOW + number))
    return table


def numbers(table: Table) -> list[int]:
    async def read() -> list[int]:
        request = Request(TableKind.VERSIONS, StreamQuery(columns=("version", "after")))
        found = [batch async for batch in request.batches(table)]
        return [number for batch in found for number in batch["version"].to_pylist()]

    return drive(read())


async def write_more(table: Table) -> None:
    with small_limits():
        for number in range(5):
            await Worker(table, clock=ToldClock(NOW + 1000), batch="done").handle(write(f"more {number}"))


async def cut(table: Table) -> None:
    rules = TruncationChoices(older_than=DAY).as_of(NOW + 3 * DAY, OpenBatches())
    await truncate_stream(table, f"Diary-{DIARY}", rules, PATIENCE)


@pytest.mark.parametrize("pages", range(1, 6))
def test_versions_that_are_written_meanwhile_are_not_given_and_none_is_missing(table, pages):
    assert numbers(ByTwos(table, pages, lambda: write_more(table))) == list(range(1, LINES + 1))


@pytest.mark.parametrize("pages", range(1, 6))
def test_a_stream_that_is_cut_meanwhile_has_no_version_twice_and_its_newest_ones(table, pages):
    found = numbers(ByTwos(table, pages, lambda: cut(table)))

    kept = numbers(table)
    assert len(kept) < LINES
    assert found == sorted(set(found))
    assert found[-len(kept) :] == kept


def test_a_damaged_run_is_named_with_its_stream(table):
    row = next(row for row in drive(table.scan(None)).rows if row.row_key.startswith("SS-SE-"))
    damaged = {**row.properties, "Data": b"nothing"}
    drive(table.transact(row.partition_key, [Operation.replace(row.row_key, damaged)]))

    with pytest.raises(StoredDataError) as raised:
        numbers(table)
    assert (raised.value.stream, raised.value.row) == (row.partition_key, row.row_key)
