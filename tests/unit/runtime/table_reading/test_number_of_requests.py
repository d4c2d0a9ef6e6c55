"""What is not asked for is not requested."""

from typing import Any

import pytest

from eventstore import InterceptedTable, KeyRange, Table, drive
from runtime.tables.reader import Request, TableKind
from runtime.tables.streams import ALL, StreamQuery
from runtime.versions import limits
from tests.unit.runtime.diary import misbehave, write
from tests.unit.runtime.table_reading.random_worlds import small_limits
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker

STREAMS = 60
RECENT = f"d-{STREAMS + 1}"


@pytest.fixture(scope="module")
def diaries() -> Table:
    """Give streams of one version in a tail, and two with runs, one of them written last."""
    table = memory_table()
    with small_limits():
        for number in range(STREAMS):
            Worker(table, business_id=f"d-{number}").process(write("first", diary=f"d-{number}"))
        for number in range(14):
            write_recent(table, number)
            Worker(table, business_id="d-7").process(write(f"line {number}", diary="d-7"))
        Worker(table, business_id="d-7").process(misbehave("fail", "bad", diary="d-7"))
    for number in range(14, 17):
        write_recent(table, number)  # into a tail that is as long as it may be
    return table


def write_recent(table: Table, number: int) -> None:
    clock = ToldClock(NOW + number * DAY)
    Worker(table, clock=clock, business_id=RECENT).process(write(f"line {number}", diary=RECENT))


def read(table: Table, request: Request, keys: KeyRange = ALL) -> tuple[int, dict[str, int]]:
    """Return the number of rows, and the requests that they took."""
    counted = InterceptedTable(table)

    async def rows() -> int:
        return sum([batch.num_rows async for batch in request.batches(counted, keys)])

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


def test_states_as_of_a_time_that_tails_do_not_tell_take_a_request_for_each_such_stream(diaries):
    rows, requests = read(diaries, Request(TableKind.STATE, as_of=NOW + 2 * DAY))

    assert rows == STREAMS + 1
    assert requests["scan"] == 1
    assert requests["query"] <= 5


def test_many_streams_are_read_with_what_stands_between_them(table):
    with small_limits():
        for number in range(20):
            for line in range(12):
                clock = ToldClock(NOW + line * DAY)
                worker = Worker(table, clock=clock, business_id=f"d-{number:02}")
                worker.process(write(f"line {line}", diary=f"d-{number:02}"))

    rows, requests = read(table, Request(TableKind.STATE, as_of=NOW + DAY))

    assert (rows, requests) == (20, {"scan": 2})


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
    worker = Worker(table)
    worker.process(write(big, "big"), *[write(str(number)) for number in range(200)])

    async def sizes() -> list[int]:
        return [batch.nbytes async for batch in Request(TableKind.VERSIONS).batches(table)]

    found = drive(sizes())

    assert len(found) > 4
    assert max(found) < 20 * 2**20
