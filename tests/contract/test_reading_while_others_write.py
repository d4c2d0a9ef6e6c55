from __future__ import annotations

import pytest

from eventstore import ConcurrencyConflictError, EventData, InterceptedTable, Partition, Stream
from eventstore.slices import READ_ATTEMPTS

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


def test_a_write_between_two_pages_starts_the_read_again(run, table, partition, stream):
    async def write():
        await Stream.write(await Stream.open(partition), EventData({"N": 0}))

    watched, seen = intercepted(table, partition, at={2}, action=write)

    found = run(Stream.read(seen, slice_size=None))

    assert versions(found) == list(range(1, VERSIONS + 2))
    assert found.stream.etag == run(Stream.open(partition)).etag
    # Two pages and a look at the header, and all of it again.
    assert watched.calls == 6


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


def test_a_stream_that_changes_each_time_is_given_up(run, table, partition, stream):
    async def write():
        await Stream.write(await Stream.open(partition), EventData({"N": 0}))

    watched, seen = intercepted(table, partition, at=range(2, 1000, 3), action=write)

    with pytest.raises(ConcurrencyConflictError, match="each time"):
        run(Stream.read(seen, slice_size=None))

    assert watched.calls == 3 * READ_ATTEMPTS


def test_a_version_written_after_the_read_is_a_conflict_for_the_writer(run, table, partition, stream):
    found = run(Stream.read(partition, slice_size=1))
    run(Stream.write(stream, EventData({"N": 0})))

    with pytest.raises(ConcurrencyConflictError):
        run(Stream.write(found.stream, EventData({"N": 1})))
