from __future__ import annotations

import pytest

from eventstore import EventData, InterceptedTable, Partition, Stream, StreamNotFoundError


@pytest.fixture
def stream(run, partition):
    """Give a stream with 7 events."""
    events = [EventData({"N": number, "Twice": 2 * number}) for number in range(1, 8)]
    return run(Stream.write(partition, *events, expected_version=0, properties={"Owner": "me"})).stream


@pytest.mark.parametrize(
    ("asked", "expected", "is_end"),
    [
        ({}, [7, 6, 5, 4, 3, 2, 1], True),
        ({"slice_size": None}, [7, 6, 5, 4, 3, 2, 1], True),
        ({"slice_size": 3}, [7, 6, 5], False),
        ({"slice_size": 7}, [7, 6, 5, 4, 3, 2, 1], True),
        ({"start_version": 4, "slice_size": 3}, [4, 3, 2], False),
        ({"start_version": 3, "slice_size": 3}, [3, 2, 1], True),
        ({"start_version": 1}, [1], True),
        ({"start_version": 99, "slice_size": 2}, [7, 6], False),
    ],
)
def test_the_newest_comes_first(run, stream, asked, expected, is_end):
    found = run(Stream.read_backwards(stream.partition, **asked))

    assert [event.version for event in found.events] == expected
    assert [event.properties["N"] for event in found.events] == expected
    assert found.is_end_of_stream is is_end
    assert found.stream == stream


@pytest.mark.parametrize(
    ("count", "expected"), [(1, [7]), (3, [5, 6, 7]), (7, list(range(1, 8))), (9, list(range(1, 8)))]
)
def test_the_last_ones_come_in_their_order(run, stream, count, expected):
    found = run(Stream.read_last(stream.partition, count))

    assert [event.version for event in found.events] == expected
    assert found.is_end_of_stream
    assert found.stream == stream


def test_an_empty_stream_has_no_last_event(run, partition):
    run(Stream.provision(partition))

    assert run(Stream.read_last(partition)).events == ()
    assert run(Stream.read_backwards(partition)).is_end_of_stream


def test_a_stream_that_is_not_there_is_an_error(run, partition):
    with pytest.raises(StreamNotFoundError):
        run(Stream.read_backwards(partition))
    with pytest.raises(StreamNotFoundError):
        run(Stream.read_last(partition))


@pytest.mark.parametrize("asked", [{"start_version": 0}, {"slice_size": 0}])
def test_versions_and_numbers_count_from_1(run, stream, asked):
    with pytest.raises(ValueError, match="0"):
        run(Stream.read_backwards(stream.partition, **asked))


def test_what_was_cut_away_is_not_there(run, stream):
    run(Stream.truncate(stream, 4))

    found = run(Stream.read_backwards(stream.partition, 6))
    assert [event.version for event in found.events] == [6, 5, 4]
    assert found.is_end_of_stream
    assert run(Stream.read_backwards(stream.partition, 3)).events == ()


def test_a_selection_reads_only_those_properties(run, stream):
    found = run(Stream.read_last(stream.partition, 2, select=["N"], header=["Owner"]))

    assert [event.properties for event in found.events] == [{"N": 6}, {"N": 7}]
    assert found.stream.properties == {"Owner": "me"}
    assert found.stream.partial


def test_without_a_selection_of_the_header_its_properties_are_not_read(run, stream):
    found = run(Stream.read_last(stream.partition, select=["N"]))

    assert found.stream.properties is None
    assert run(Stream.write(found.stream, EventData({"N": 8}))).stream.version == 8
    assert run(Stream.open(stream.partition)).properties == {"Owner": "me"}


def test_a_truncation_after_the_header_was_read_starts_the_read_again(run, table, stream):
    async def truncate(name, _partition_key, number, _result):
        if name == "query" and number == 1:
            await Stream.truncate(stream, 6)

    watched = InterceptedTable(table, after=truncate)

    found = run(Stream.read_backwards(Partition(watched, "orders-7")))

    assert [event.version for event in found.events] == [7, 6]
    assert found.stream.first_version == 6
    assert watched.counts == {"query": 4}


def test_a_write_after_the_header_was_read_does_not_show(run, table, stream):
    async def write(name, _partition_key, number, _result):
        if name == "query" and number == 1:
            await Stream.write(stream, EventData({"N": 8}))

    watched = InterceptedTable(table, after=write)

    found = run(Stream.read_last(Partition(watched, "orders-7"), 2))

    assert [event.version for event in found.events] == [6, 7]
    assert found.stream.version == 7
