"""A stream value that was kept elsewhere, as its parts. What is not known of the stream stays as it is."""

from __future__ import annotations

import pytest

from eventstore import ConcurrencyConflictError, EventData, InterceptedTable, Partition, Stream

EVENT = EventData({"N": 9})


@pytest.fixture
def watched(table):
    return InterceptedTable(table)


@pytest.fixture
def stream(run, watched):
    """Give a stream with eight events, of which the first five have been cut away."""
    events = [EventData({"N": number}) for number in range(1, 9)]
    written = Stream.write(
        Partition(watched, "orders-7"), *events, expected_version=0, properties={"Owner": "me", "Limit": 3}
    )
    cut = run(Stream.truncate(run(written).stream, 6))
    watched.counts.clear()
    return cut


def restored(stream, **known):
    return Stream(stream.partition, stream.etag, stream.version, **known)


def found(run, stream):
    slice_ = run(Stream.read(stream.partition))
    return slice_.stream.first_version, [event.version for event in slice_.events]


@pytest.mark.parametrize("known", [{}, {"properties": {"Owner": "me", "Limit": 3}}, {"first_version": 6}])
def test_a_write_keeps_the_watermark_and_the_properties(run, watched, stream, known):
    written = run(Stream.write(restored(stream, **known), EVENT)).stream
    run(Stream.write(written, EVENT))

    assert watched.counts == {"transact": 2}
    assert found(run, stream) == (6, [6, 7, 8, 9, 10])
    assert run(Stream.open(stream.partition)).properties == {"Owner": "me", "Limit": 3}


def test_a_write_brings_the_properties_that_were_given(run, stream):
    run(Stream.write(restored(stream, properties={"Owner": "you"}), EVENT))

    assert run(Stream.open(stream.partition)).properties == {"Owner": "you", "Limit": 3}


REPLACING = [
    lambda stream: Stream.set_properties(stream, {"Owner": "you"}),
    lambda stream: Stream.write(stream, EVENT, properties={"Owner": "you"}),
    lambda stream: Stream.write_in_parts(stream, [EVENT] * 100, properties={"Owner": "you"}),
    lambda stream: Stream.truncate(stream, 6, {"Owner": "you"}),
]


@pytest.mark.parametrize("replace", REPLACING)
@pytest.mark.parametrize("known", [{}, {"properties": {"Limit": 3}}])
def test_replacing_the_properties_keeps_the_watermark(run, stream, replace, known):
    run(replace(restored(stream, **known)))

    first_version, versions = found(run, stream)
    assert (first_version, versions[:3]) == (6, [6, 7, 8])
    assert run(Stream.open(stream.partition)).properties == {"Owner": "you"}


@pytest.mark.parametrize(("known", "price"), [({}, 1), ({"first_version": 6}, 0)])
def test_replacing_the_properties_costs_a_request_when_the_watermark_is_not_known(
    run, watched, stream, known, price
):
    changed = run(Stream.set_properties(restored(stream, **known), {"Owner": "you"}))

    assert (watched.counts["get"], watched.counts["transact"]) == (price, 1)
    assert changed == run(Stream.open(stream.partition))


def test_the_watermark_does_not_move_back(run, stream, refuses):
    with refuses(ValueError, match="events 6 to 8 cannot be cut up to 3"):
        run(Stream.truncate(restored(stream), 3))


@pytest.mark.parametrize("replace", REPLACING)
def test_a_value_that_is_out_of_date_is_a_conflict(run, stream, refuses, replace):
    run(Stream.write(stream, EVENT))

    with refuses(ConcurrencyConflictError):
        run(replace(restored(stream)))
