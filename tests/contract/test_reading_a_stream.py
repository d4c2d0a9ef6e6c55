from __future__ import annotations

import pytest

from eventstore import EventData, Operation, RecordedEvent, Stream, StreamNotFoundError


@pytest.fixture
def stream(run, partition):
    events = [EventData({"N": number, "Text": f"event {number}"}) for number in range(1, 8)]
    return run(
        Stream.write(partition, *events, expected_version=0, properties={"Owner": "me", "Limit": 3})
    ).stream


def versions(found):
    return [event.version for event in found.events]


def test_all_events_come_with_the_stream(run, partition, stream):
    found = run(Stream.read(partition))

    assert found.stream == stream
    assert versions(found) == [1, 2, 3, 4, 5, 6, 7]
    assert found.events[2] == RecordedEvent(3, {"N": 3, "Text": "event 3"})
    assert found.has_events
    assert found.is_end_of_stream


@pytest.mark.parametrize(
    ("asked", "expected", "is_end"),
    [
        ((1, 3), [1, 2, 3], False),
        ((1, 7), [1, 2, 3, 4, 5, 6, 7], True),
        ((1, 8), [1, 2, 3, 4, 5, 6, 7], True),
        ((1, None), [1, 2, 3, 4, 5, 6, 7], True),
        ((3, 2), [3, 4], False),
        ((6, 2), [6, 7], True),
        ((6, None), [6, 7], True),
        ((7, 1), [7], True),
        ((8, 5), [], True),
        ((100, None), [], True),
    ],
)
def test_a_slice_has_the_events_asked_for(run, stream, asked, expected, is_end):
    found = run(Stream.read(stream.partition, *asked))

    assert versions(found) == expected
    assert found.has_events == bool(expected)
    assert found.is_end_of_stream == is_end
    assert found.stream == stream


def test_an_empty_stream_has_no_events(run, partition):
    run(Stream.provision(partition))

    found = run(Stream.read(partition))

    assert (found.events, found.has_events, found.is_end_of_stream) == ((), False, True)


def test_a_stream_that_is_not_there_is_an_error(run, partition):
    with pytest.raises(StreamNotFoundError):
        run(Stream.read(partition))
    with pytest.raises(StreamNotFoundError):
        run(Stream.read(partition, start_version=5))


def test_trying_to_read_a_stream_that_is_not_there_gives_none(run, partition):
    assert run(Stream.try_read(partition)) is None
    assert run(Stream.try_read(partition, start_version=5)) is None


def test_versions_start_at_1(run, partition, stream):
    with pytest.raises(ValueError, match="count from 1"):
        run(Stream.read(partition, start_version=0))


def test_a_slice_has_at_least_one_event(run, partition, stream):
    with pytest.raises(ValueError, match="at least one event"):
        run(Stream.read(partition, slice_size=0))


def test_a_selection_reads_only_those_event_properties(run, partition, stream):
    found = run(Stream.read(partition, select=["N", "Missing"]))

    assert found.events[6] == RecordedEvent(7, {"N": 7})
    assert found.stream.etag == stream.etag
    assert (found.stream.version, found.stream.properties) == (7, None)


def test_a_selection_can_name_stream_properties_too(run, partition, stream):
    found = run(Stream.read(partition, select=["N"], header=["Owner"]))

    assert found.events[0] == RecordedEvent(1, {"N": 1})
    assert found.stream.properties == {"Owner": "me"}
    assert found.stream.partial


def test_an_empty_selection_reads_the_versions(run, partition, stream):
    found = run(Stream.read(partition, start_version=2, select=[]))

    assert found.events == tuple(RecordedEvent(version, {}) for version in range(2, 8))


def test_writing_after_a_partial_read_keeps_what_was_not_read(run, partition, stream):
    found = run(Stream.read(partition, select=["N"], header=["Owner"]))

    run(Stream.write(found.stream, EventData({"N": 8})))

    assert run(Stream.open(partition)).properties == {"Owner": "me", "Limit": 3}


def test_events_are_read_without_the_header(run, partition, stream):
    events = run(Stream.read_events(stream, 2, 4, select=["N"]))

    assert events == tuple(RecordedEvent(version, {"N": version}) for version in (2, 3, 4))
    assert run(Stream.read_events(stream, 7, 7))[0].properties == {"N": 7, "Text": "event 7"}


@pytest.mark.parametrize(("first", "last"), [(0, 1), (3, 2), (1, 8), (8, 8)])
def test_events_that_the_stream_does_not_have_cannot_be_asked_for(run, partition, stream, first, last):
    with pytest.raises(ValueError, match="are asked for"):
        run(Stream.read_events(stream, first, last))


def test_other_rows_among_the_events_are_passed_over(run, table, partition, stream):
    run(table.transact(partition.key, [Operation.insert(key, {}) for key in ("SS-IN", "SS-SE-", "SS-SE-12")]))

    assert versions(run(Stream.read(partition))) == [1, 2, 3, 4, 5, 6, 7]


def test_a_slice_larger_than_a_page_is_put_together(run, partition):
    stream = Stream(partition)
    for start in range(1, 1101, 99):
        events = [EventData({"N": number}) for number in range(start, start + 99)]
        stream = run(Stream.write(stream, *events)).stream

    found = run(Stream.read(partition, slice_size=None))

    assert versions(found) == list(range(1, stream.version + 1))
    assert found.is_end_of_stream
    assert versions(run(Stream.read(partition, 3, 1050))) == list(range(3, 1053))
    assert [event.version for event in run(Stream.read_events(stream, 2, 1050))] == list(range(2, 1051))
