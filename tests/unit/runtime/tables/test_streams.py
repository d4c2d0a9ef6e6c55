"""Reading streams asks for no more than is needed, and gives each stream as it was at one moment."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from eventstore import InterceptedTable, Page, Table, drive
from runtime.algorithms.state_based.truncation import TruncationChoices, truncate_stream
from runtime.ledger.batch import OpenBatches
from runtime.tables.reader import Request, TableKind
from runtime.tables.streams import StreamQuery
from runtime.versions import limits
from tests.unit.runtime.diary import DIARY, misbehave, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.tables.random_worlds import small_limits
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker

STREAMS = 60
RECENT = f"d-{STREAMS + 1}"


@pytest.fixture(scope="module")
def diaries() -> Table:
    """Give streams of one version in a tail, and two with runs, one of them written last."""
    table = memory_table()
    with small_limits():
        for number in range(STREAMS):
            write_line(table, f"d-{number}", "first")
        for number in range(14):
            write_line(table, RECENT, number, NOW + number * DAY)
            write_line(table, "d-7", number)
        Worker(table, business_id="d-7").process(misbehave("fail", "bad", diary="d-7"))
    for number in range(14, 17):  # into a tail that is as long as it may be
        write_line(table, RECENT, number, NOW + number * DAY)
    return table


def write_line(table: Table, diary: str, line: object, now: int = NOW) -> None:
    Worker(table, clock=ToldClock(now), business_id=diary).process(write(f"line {line}", diary=diary))


def read(table: Table, request: Request) -> tuple[int, dict[str, int]]:
    """Return the number of rows, and the requests that they took."""
    counted = InterceptedTable(table)

    async def rows() -> int:
        return sum([batch.num_rows async for batch in request.batches(counted)])

    return drive(rows()), dict(counted.counts)


@pytest.mark.parametrize(
    ("kind", "query", "rows", "requests"),
    [
        ("state", StreamQuery(), STREAMS + 1, {"scan": 1, "query": 2}),
        ("state", StreamQuery(columns=("handler", "version")), STREAMS + 1, {"scan": 1}),
        ("state", StreamQuery("Diary", "d-3"), 1, {"get": 1}),
        ("state", StreamQuery("Nobody"), 0, {"scan": 1, "get": 1}),
        ("versions", StreamQuery(), STREAMS + 31, {"scan": 1}),
        ("versions", StreamQuery("Diary", "d-3"), 1, {"query": 1}),
        ("versions", StreamQuery("Diary", "d-7"), 15, {"query": 1}),
        ("versions", StreamQuery("Nobody"), 0, {"scan": 1, "get": 1}),
        ("versions", StreamQuery("Diary", since=NOW + 15 * DAY), 2, {"scan": 1}),
        ("versions", StreamQuery("Diary", since=NOW + 5 * DAY), 12, {"scan": 1, "query": 1}),
        ("versions", StreamQuery(since=NOW + 17 * DAY), 0, {"scan": 1}),
        ("letters", StreamQuery("Diary", "d-7"), 1, {"get": 2, "query": 1}),
        ("batches", StreamQuery(), 0, {"query": 1}),
    ],
)
def test_each_request_is_counted(diaries, kind, query, rows, requests):
    assert read(diaries, Request(TableKind(kind), query)) == (rows, requests)


def test_states_as_of_a_time_that_tails_do_not_tell_take_a_request_for_each_such_stream_or_one_scan(
    diaries, table
):
    rows, requests = read(diaries, Request(TableKind.STATE, as_of=NOW + 2 * DAY))
    assert (rows, requests["scan"], requests["query"] <= 5) == (STREAMS + 1, 1, True)

    with small_limits():
        for number in range(20):
            for line in range(12):
                write_line(table, f"d-{number:02}", line, NOW + line * DAY)
    assert read(table, Request(TableKind.STATE, as_of=NOW + DAY)) == (20, {"scan": 2})


def test_only_the_properties_of_the_columns_are_asked_for(diaries):
    asked: list[Any] = []

    class Noting(InterceptedTable):
        async def query(self, *args, select=None, **options):
            asked.append(select)
            return await super().query(*args, select=select, **options)

    async def read_all() -> None:
        query = StreamQuery("Diary", "d-7", columns=("batch", "version"))
        async for _ in Request(TableKind.VERSIONS, query).batches(Noting(diaries)):
            pass

    drive(read_all())

    (names,) = asked
    assert not {"Data", "Ids", "State"} & set(names)


def test_a_batch_is_bounded_by_the_bytes_of_its_states(table):
    big = "x" * (limits.MAX_STATE_BYTES // 4)
    Worker(table).process(write(big, "big"), *[write(str(number)) for number in range(200)])

    async def sizes() -> list[int]:
        return [batch.nbytes async for batch in Request(TableKind.VERSIONS).batches(table)]

    found = drive(sizes())

    assert len(found) > 4
    assert max(found) < 20 * 2**20


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
def long(table: Table) -> Table:
    """Give a table with one stream of many runs."""
    with small_limits():
        for number in range(LINES):
            worker = Worker(table, clock=ToldClock(NOW + number), batch="done")
            worker.process(write(f"line {number}", enqueued_at=NOW + number))
    return table


def numbers(table: Table) -> list[int]:
    async def read() -> list[int]:
        request = Request(TableKind.VERSIONS, StreamQuery(columns=("version", "after")))
        return [number async for batch in request.batches(table) for number in batch["version"].to_pylist()]

    return drive(read())


async def write_more(table: Table) -> None:
    with small_limits():
        for number in range(5):
            await Worker(table, clock=ToldClock(NOW + 1000), batch="done").handle(write(f"more {number}"))


async def cut(table: Table) -> None:
    rules = TruncationChoices(older_than=DAY).as_of(NOW + 3 * DAY, OpenBatches())
    await truncate_stream(table, f"Diary-{DIARY}", rules, PATIENCE)


@pytest.mark.parametrize("pages", range(1, 6))
def test_a_stream_that_is_written_or_cut_meanwhile_has_each_version_of_one_moment_once(long, pages):
    assert numbers(ByTwos(long, pages, lambda: write_more(long))) == list(range(1, LINES + 1))

    found = numbers(ByTwos(long, pages, lambda: cut(long)))

    kept = numbers(long)
    assert len(kept) < LINES
    assert found == sorted(set(found))
    assert found[-len(kept) :] == kept
