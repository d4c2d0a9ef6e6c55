"""Appends do not disturb a read, truncations start it again."""

from functools import partial

import pytest

from eventstore import ConcurrencyConflictError, Stream
from eventstore.reading import READ_ATTEMPTS
from tests.support.streams import disturbed, event, events, versions, write_all

VERSIONS = 1188


@pytest.fixture
def stream(run, partition):
    return run(write_all(partition, events(1, VERSIONS)))


async def append(partition):
    await Stream.write(await Stream.open(partition), event(0))


async def truncate(partition):
    await Stream.truncate(await Stream.open(partition), 1150)


@pytest.fixture
def seen(table, partition):
    """Give the partition seen through a table that does something before some of its calls."""

    def seen(action, at=range(1, 100)):
        async def act(_name, _key, number):
            if number in at:
                await action(partition)

        return disturbed(table, before=act)

    return seen


@pytest.mark.parametrize(
    ("read", "first", "calls"),
    [
        (partial(Stream.read, slice_size=None), 1, 2),
        (partial(Stream.read, start_version=2, slice_size=None), 2, 3),
        (partial(Stream.read_backwards, slice_size=VERSIONS), 2, 3),
        (partial(Stream.read_last, count=VERSIONS), 2, 3),
    ],
)
def test_appends_before_each_page_do_not_disturb_a_read(run, seen, stream, read, first, calls):
    place = seen(append)

    found = run(read(place))

    # The header that the read began with is that of one append.
    assert sorted(versions(found)) == list(range(first, VERSIONS + 2))
    assert found.stream.version == VERSIONS + 1
    assert place.table.calls == calls


def test_a_stream_value_is_that_of_the_header_that_was_read_first(run, seen, stream):
    place = seen(append, at={2})

    found = run(Stream.read(place, 1180, None))

    assert versions(found) == list(range(1180, VERSIONS + 1))
    assert (found.stream.etag, found.is_end_of_stream, place.table.calls) == (stream.etag, True, 2)
    with pytest.raises(ConcurrencyConflictError):
        run(Stream.write(found.stream, event(1)))


@pytest.mark.parametrize(
    "read",
    [
        partial(Stream.read, slice_size=None),
        partial(Stream.read, start_version=1100, slice_size=60),
        partial(Stream.read_backwards, slice_size=60),
    ],
)
def test_a_truncation_after_the_header_was_read_starts_the_read_again(run, seen, stream, read):
    place = seen(truncate, at={2})

    found = run(read(place))

    assert found.stream.first_version == 1150
    assert sorted(versions(found)) == list(range(1150, VERSIONS + 1))
    assert place.table.calls in (3, 4)


def test_a_stream_that_is_cut_each_time_is_given_up(run, seen, stream, pauses):
    async def cut(partition):
        stream = await Stream.open(partition)
        await Stream.truncate(stream, stream.first_version + 5)

    place = seen(cut)

    with pytest.raises(ConcurrencyConflictError):
        run(Stream.read(place, 2, None))

    assert place.table.calls == 3 * READ_ATTEMPTS
    assert len(pauses) == READ_ATTEMPTS - 1
