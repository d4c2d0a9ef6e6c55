"""Reading a stream: forwards, backwards, its last events, event by event, and rows together with its header."""

from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise

import pytest

from eventstore import (
    EventData,
    EventId,
    Include,
    InterceptedTable,
    Operation,
    Partition,
    RecordedEvent,
    Stream,
    StreamNotFoundError,
    StreamTruncatedError,
    Value,
)
from tests.support.streams import collect, disturbed, event, events, versions, write_all

OWN: dict[str, Value | None] = {"Owner": "me", "Limit": 3}
ALL = list(range(1, 8))


@pytest.fixture
def stream(run, partition):
    """Give a stream with 7 events."""
    given = [event(number, {"Text": f"event {number}"}) for number in ALL]
    return run(Stream.write(partition, *given, expected_version=0, properties=OWN)).stream


@pytest.mark.parametrize(
    ("read", "asked", "expected", "is_end"),
    [
        (Stream.read, (), ALL, True),
        (Stream.read, (1, 3), [1, 2, 3], False),
        (Stream.read, (1, 7), ALL, True),
        (Stream.read, (1, 8), ALL, True),
        (Stream.read, (1, None), ALL, True),
        (Stream.read, (3, 2), [3, 4], False),
        (Stream.read, (6, 2), [6, 7], True),
        (Stream.read, (6, None), [6, 7], True),
        (Stream.read, (7, 1), [7], True),
        (Stream.read, (8, 5), [], True),
        (Stream.read, (100, None), [], True),
        (Stream.read_backwards, (), ALL[::-1], True),
        (Stream.read_backwards, (None, None), ALL[::-1], True),
        (Stream.read_backwards, (None, 3), [7, 6, 5], False),
        (Stream.read_backwards, (None, 7), ALL[::-1], True),
        (Stream.read_backwards, (4, 3), [4, 3, 2], False),
        (Stream.read_backwards, (3, 3), [3, 2, 1], True),
        (Stream.read_backwards, (1,), [1], True),
        (Stream.read_backwards, (99, 2), [7, 6], False),
        (Stream.read_last, (), [7], True),
        (Stream.read_last, (3,), [5, 6, 7], True),
        (Stream.read_last, (7,), ALL, True),
        (Stream.read_last, (9,), ALL, True),
    ],
)
def test_a_slice_has_the_events_asked_for(run, stream, read, asked, expected, is_end):
    found = run(read(stream.partition, *asked))

    assert versions(found) == expected
    assert found.events == tuple(RecordedEvent(n, {"N": n, "Text": f"event {n}"}) for n in expected)
    assert (found.has_events, found.is_end_of_stream) == (bool(expected), is_end)
    assert found.stream == stream


READS = [Stream.read, Stream.read_backwards, Stream.read_last]


@pytest.mark.parametrize("read", READS)
def test_an_empty_stream_has_no_events(run, partition, read):
    run(Stream.provision(partition))

    found = run(read(partition))

    assert (found.events, found.has_events, found.is_end_of_stream) == ((), False, True)
    assert run(collect(Stream.iterate(partition))) == run(collect(Stream.iterate(partition, 5))) == []


@pytest.mark.parametrize(
    "read",
    [
        *READS,
        Stream.open,
        partial(Stream.read, start_version=5),
        lambda place: collect(Stream.iterate(place)),
    ],
)
def test_a_stream_that_is_not_there_is_an_error_or_none(run, partition, read):
    with pytest.raises(StreamNotFoundError) as raised:
        run(read(partition))
    assert raised.value.stream == "orders-7"
    for found in (Stream.try_read(partition), Stream.try_read(partition, 5), Stream.try_open(partition)):
        assert run(found) is None
    assert not run(Stream.exists(partition))


@pytest.mark.parametrize("read", [Stream.read, Stream.read_backwards])
@pytest.mark.parametrize("asked", [{"start_version": 0}, {"slice_size": 0}])
def test_versions_and_numbers_count_from_1(run, stream, read, asked):
    with pytest.raises(ValueError, match="0"):
        run(read(stream.partition, **asked))


@pytest.mark.parametrize("read", [*READS, partial(Stream.read, start_version=2)])
@pytest.mark.parametrize(("header", "kept"), [(None, None), (["Owner"], {"Owner": "me"}), ([], {})])
def test_a_selection_reads_only_those_properties_and_a_write_keeps_the_others(
    run, stream, read, header, kept
):
    found = run(read(stream.partition, select=["N", "Missing"], header=header))

    assert found.events[-1] == RecordedEvent(found.events[-1].version, {"N": found.events[-1].version})
    assert (found.stream.etag, found.stream.version, found.stream.properties) == (stream.etag, 7, kept)
    assert found.stream.partial == (header is not None)
    run(Stream.write(found.stream, event(8)))
    assert run(Stream.open(stream.partition)).properties == OWN


def test_events_are_read_without_the_header(run, stream):
    found = run(Stream.read_events(stream, 2, 4, select=["N"]))

    assert found == tuple(RecordedEvent(version, {"N": version}) for version in (2, 3, 4))
    assert run(Stream.read_events(stream, 7, 7))[0].properties == {"N": 7, "Text": "event 7"}
    for first, last in ((0, 1), (3, 2), (1, 8), (8, 8)):
        with pytest.raises(ValueError, match="do not exist"):
            run(Stream.read_events(stream, first, last))


def test_other_rows_among_the_events_are_passed_over(run, table, stream):
    others = [Operation.insert(key, {}) for key in ("SS-IN", "SS-SE-", "SS-SE-12")]
    run(table.transact(stream.partition.key, others))

    assert versions(run(Stream.read(stream.partition))) == ALL


# What a recorded event has beside version and properties: its id, its time and its ETag.

GIVEN = [EventData({"N": 1}, id="one"), EventData({"N": 2}), EventData({"N": 3}, id="three")]
IDS = [EventId("one"), None, EventId("three")]


@pytest.fixture
def written(run, partition):
    return run(Stream.write(partition, *GIVEN, expected_version=0))


@pytest.mark.parametrize(
    "read",
    [
        *READS,
        Stream.try_read,
        partial(Stream.read, start_version=3, slice_size=1),
        partial(Stream.read, select=["N"]),
        partial(Stream.read_last, count=2),
    ],
)
def test_ids_are_read_when_they_are_asked_for(run, table, partition, written, read):
    watched = InterceptedTable(table)
    without = run(read(Partition(watched, partition.key))).events
    price = watched.calls
    with_ids = run(read(Partition(watched, partition.key), ids=True)).events

    assert [each.id for each in without] == [None] * len(without)
    assert [each.id for each in with_ids] == [IDS[each.version - 1] for each in with_ids]
    assert without == with_ids
    assert watched.calls == price + price + 1


def test_a_write_gives_ids_and_etags_and_every_read_the_time_at_which_an_event_was_written(
    run, partition, written, contents
):
    etags = {row.row_key: row.etag for row in contents()}

    assert [each.id for each in written.events] == IDS
    assert [each.etag for each in written.events] == [etags[partition.event(n)] for n in (1, 2, 3)]
    for found in (
        run(Stream.read(partition)).events,
        run(Stream.read(partition, 2, select=["N"])).events,
        run(collect(Stream.iterate(partition))),
        run(Stream.read_events(written.stream, 1, 3)),
    ):
        assert {each.etag for each in found} <= set(etags.values())
        times = [each.time for each in found]
        assert all(before <= after for before, after in pairwise(times))
        assert {time.tzinfo for time in times} == {UTC}
        assert all(abs(datetime.now(UTC) - time) < timedelta(hours=1) for time in times)


# Long streams.


@pytest.fixture
def long_stream(run, partition):
    """Give a stream with 2,500 events."""
    return run(write_all(partition, events(1, 2500)))


@pytest.mark.parametrize(
    ("read", "expected", "requests"),
    [
        (Stream.read, range(1, 2501), 3),
        (Stream.try_read, range(1, 2501), 3),
        (Stream.read_backwards, range(2500, 0, -1), 4),
        (partial(Stream.read, start_version=2), range(2, 2501), 4),
        (partial(Stream.read, start_version=3, slice_size=1050), range(3, 1053), 3),
        (lambda place: collect(Stream.iterate(place)), range(1, 2501), 3),
        (lambda place: collect(Stream.iterate(place, 1400, select=["N"])), range(1400, 2501), 3),
    ],
)
def test_more_events_than_a_page_are_put_together(run, table, long_stream, read, expected, requests):
    place = disturbed(table)

    found = run(read(place))

    assert versions(found) == list(expected)
    assert [each.properties["N"] for each in getattr(found, "events", found)] == list(expected)
    assert place.table.counts["query"] + place.table.counts["get"] == requests


def test_pages_are_read_when_they_are_asked_for(run, table, long_stream):
    async def first(number):
        found = Stream.iterate(place)
        return [(await anext(found)).version for _ in range(number)]

    place = disturbed(table)

    assert run(first(999))[-1] == 999
    assert place.table.counts == {"query": 1}


async def iterate_and(act, stream, seen):
    """Iterate over a stream, and do something after its first event."""
    async for each in Stream.iterate(stream.partition):
        seen.append(each.version)
        if each.version == 1:
            await act(stream)


@pytest.mark.parametrize("cut", [1100, 2400])
def test_events_written_during_an_iteration_do_not_come_and_those_cut_away_are_an_error_and_not_a_gap(
    run, long_stream, cut
):
    seen: list[int] = []
    run(iterate_and(lambda stream: Stream.write(stream, event(0)), long_stream, seen))
    assert seen == list(range(1, 2501))

    stream, seen = run(Stream.open(long_stream.partition)), []
    with pytest.raises(StreamTruncatedError):
        run(iterate_and(lambda stream: Stream.truncate(stream, cut), stream, seen))

    assert seen == list(range(1, 1000))
    assert versions(run(collect(Stream.iterate(stream.partition)))) == list(range(cut, 2502))


# Included rows that sort right behind the header are read together with it.


@pytest.fixture
def with_rows(run, partition):
    """Give a stream with two events, two index rows, and a row behind the events."""
    includes = [Include.insert(f"SS-IDX-{number}", {"N": number, "M": 1}) for number in (1, 2)]
    includes.append(Include.insert("mine", {"N": 3}))
    written = Stream.write(partition, *events(1, 2), expected_version=0, properties=OWN, includes=includes)
    return run(written).stream


def open_with(run, partition):
    return run(Stream.try_open_with(partition, "SS-IDX-~", select=["N"], header=["Owner"]))


def test_header_and_rows_come_without_the_events_and_rows_without_a_header_are_none(run, table, with_rows):
    found, rows = open_with(run, with_rows.partition)

    assert (found.version, found.etag, found.properties) == (2, with_rows.etag, {"Owner": "me"})
    assert [(row.row_key, row.properties) for row in rows] == [("SS-IDX-1", {"N": 1}), ("SS-IDX-2", {"N": 2})]
    run(table.transact("orders-8", [Operation.insert("SS-IDX-1", {"N": 1})]))
    assert open_with(run, Partition(table, "orders-8")) is None


@pytest.fixture
def many_rows(run, table, partition):
    """Give a stream with rows for two pages."""
    stream = run(Stream.provision(partition))
    for start in range(0, 1200, 100):
        rows = [Operation.insert(f"SS-IDX-{number:04}", {}) for number in range(start, start + 100)]
        run(table.transact("orders-7", rows))
    return stream


def test_a_change_between_two_pages_starts_the_read_again(run, table, many_rows, pauses):
    async def change(_name, _partition_key, number, _result):
        if number == 1:
            await Stream.write(many_rows, event(1), includes=[Include.delete("SS-IDX-0000", "*")])

    found, rows = open_with(run, disturbed(table, after=change))

    assert (found.version, len(rows)) == (1, 1199)
    assert len(pauses) == 1
