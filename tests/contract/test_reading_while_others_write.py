from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from eventstore import ConcurrencyConflictError, EventData, InterceptedTable, Partition, Stream
from eventstore.reading import READ_ATTEMPTS
from eventstore.sync import BlockingStore

VERSIONS = 1188


@pytest.fixture
def stream(run, partition):
    stream = Stream(partition)
    for start in range(1, VERSIONS, 99):
        events = [EventData({"N": number}) for number in range(start, start + 99)]
        stream = run(Stream.write(stream, *events)).stream
    return stream


def intercepted(table, partition, *, at, action):
    """Return the partition seen through a table that carries out an action before some of its calls."""

    async def act(name, _key, number):
        if number in at:
            await action()

    watched = InterceptedTable(table, before=act)
    return watched, Partition(watched, partition.key)


def versions(found):
    return [event.version for event in found.events]


async def append(partition):
    await Stream.write(await Stream.open(partition), EventData({"N": 0}))


def test_appends_before_each_page_do_not_disturb_a_read(run, table, partition, stream):
    watched, seen = intercepted(table, partition, at=range(1, 100), action=lambda: append(partition))

    found = run(Stream.read(seen, slice_size=None))

    # The header that the read began with is that of one append.
    assert versions(found) == list(range(1, VERSIONS + 2))
    assert (found.stream.version, found.is_end_of_stream) == (VERSIONS + 1, True)
    assert watched.calls == 2


@pytest.mark.parametrize(
    "read",
    [
        lambda seen: Stream.read(seen, 2, None),
        lambda seen: Stream.read_backwards(seen, slice_size=VERSIONS),
        lambda seen: Stream.read_last(seen, VERSIONS),
    ],
)
def test_nor_one_that_begins_later_or_goes_backwards(run, table, partition, stream, read):
    _, seen = intercepted(table, partition, at=range(1, 100), action=lambda: append(partition))

    found = run(read(seen))

    assert sorted(versions(found)) == list(range(2, VERSIONS + 2))


def test_a_stream_value_that_was_read_in_pages_is_that_of_its_header(run, table, partition, stream):
    _, seen = intercepted(table, partition, at={2}, action=lambda: append(partition))

    found = run(Stream.read(seen, slice_size=None))

    with pytest.raises(ConcurrencyConflictError):
        run(Stream.write(found.stream, EventData({"N": 1})))


def test_a_truncation_between_two_pages_starts_the_read_again(run, table, partition, stream):
    async def truncate():
        await Stream.truncate(await Stream.open(partition), 1150)

    _, seen = intercepted(table, partition, at={2}, action=truncate)

    found = run(Stream.read(seen, slice_size=None))

    assert found.stream.first_version == 1150
    assert versions(found) == list(range(1150, VERSIONS + 1))


def test_a_truncation_after_the_header_was_read_starts_the_read_again(run, table, partition, stream):
    async def truncate():
        await Stream.truncate(await Stream.open(partition), 1150)

    watched, seen = intercepted(table, partition, at={2}, action=truncate)

    found = run(Stream.read(seen, 1100, 60))

    assert versions(found) == list(range(1150, VERSIONS + 1))
    assert watched.calls == 4


def test_a_write_after_the_header_was_read_does_not_show(run, table, partition, stream):
    async def write():
        await Stream.write(await Stream.open(partition), EventData({"N": 0}))

    watched, seen = intercepted(table, partition, at={2}, action=write)

    found = run(Stream.read(seen, 1180, None))

    assert versions(found) == list(range(1180, VERSIONS + 1))
    assert found.stream.etag == stream.etag
    assert found.is_end_of_stream
    assert watched.calls == 2


def test_a_stream_that_is_cut_each_time_is_given_up(run, table, partition, stream, pauses):
    async def cut():
        stream = await Stream.open(partition)
        await Stream.truncate(stream, stream.first_version + 5)

    watched, seen = intercepted(table, partition, at=range(1, 100), action=cut)

    with pytest.raises(ConcurrencyConflictError, match="each time"):
        run(Stream.read(seen, 2, None))

    assert watched.calls == 3 * READ_ATTEMPTS
    assert len(pauses) == READ_ATTEMPTS - 1


def test_a_version_written_after_the_read_is_a_conflict_for_the_writer(run, table, partition, stream):
    found = run(Stream.read(partition, slice_size=1))
    run(Stream.write(stream, EventData({"N": 0})))

    with pytest.raises(ConcurrencyConflictError):
        run(Stream.write(found.stream, EventData({"N": 1})))


def append_until(stop, store_url, table_name):
    """Append, one event after the other, until told to stop; return the stream's version."""
    with BlockingStore(store_url) as store:
        stream = store.open(Partition(store.table(table_name), "orders-7"))
        while not stop.is_set():
            stream = store.write(stream, EventData({"N": 0})).stream
    return stream.version


@pytest.mark.thorough
def test_a_hundred_thousand_events_are_read_under_constant_appends(run, store_url, table_name, partition):
    events = [EventData({"N": number}) for number in range(1, 100_001)]
    run(Stream.write_in_parts(partition, events, expected_version=0))
    stop = Event()

    with ThreadPoolExecutor() as pool:
        appended = pool.submit(append_until, stop, store_url, table_name)
        try:
            found = run(Stream.read(partition, slice_size=None))
        finally:
            stop.set()

    assert versions(found) == list(range(1, found.stream.version + 1))
    assert len(events) <= found.stream.version <= appended.result()
    assert [event.properties["N"] for event in found.events[: len(events)]] == list(range(1, 100_001))
