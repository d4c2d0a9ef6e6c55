from __future__ import annotations

from typing import cast

import pytest

from eventstore import (
    ConcurrencyConflictError,
    EventData,
    InterceptedTable,
    Operation,
    Partition,
    PayloadTooLargeError,
    RecordedEvent,
    Stream,
)


def event(number: int) -> EventData:
    return EventData({"N": number})


def test_events_are_numbered_from_1_and_each_is_a_row(run, partition, contents):
    result = run(Stream.write(partition, event(10), event(20), expected_version=0))

    assert result.events == (RecordedEvent(1, {"N": 10}), RecordedEvent(2, {"N": 20}))
    assert result.stream.version == 2
    assert [(row.row_key, row.properties) for row in contents()] == [
        ("SS-HEAD", {"Version": 2}),
        ("SS-SE-0000000001", {"Version": 1, "N": 10}),
        ("SS-SE-0000000002", {"Version": 2, "N": 20}),
    ]


def test_a_stream_value_is_written_again_and_again(run, partition):
    stream = Stream(partition)
    for number in range(1, 5):
        result = run(Stream.write(stream, event(number)))
        assert result.events == (RecordedEvent(number, {"N": number}),)
        stream = result.stream

    assert run(Stream.open(partition)) == stream


def test_a_provisioned_stream_is_written(run, partition):
    stream = run(Stream.provision(partition, {"Owner": "me"}))

    written = run(Stream.write(stream, event(1))).stream

    assert (written.version, written.properties) == (1, {"Owner": "me"})
    assert run(Stream.open(partition)) == written


def test_the_expected_version_is_that_of_the_stream(run, partition):
    run(Stream.write(partition, event(1), expected_version=0))

    result = run(Stream.write(partition, event(2), event(3), expected_version=1))

    assert [recorded.version for recorded in result.events] == [2, 3]
    assert run(Stream.open(partition)) == result.stream


@pytest.mark.parametrize("expected", [0, 1, 3, 100])
def test_another_version_than_the_expected_one_is_a_conflict(run, partition, refuses, expected):
    run(Stream.write(partition, event(1), event(2), expected_version=0))

    with refuses(ConcurrencyConflictError, match="orders-7"):
        run(Stream.write(partition, event(3), expected_version=expected))


def test_a_stream_expected_but_not_there_is_a_conflict(run, partition, refuses):
    with refuses(ConcurrencyConflictError, match="does not exist"):
        run(Stream.write(partition, event(1), expected_version=1))


def test_version_0_means_that_there_is_no_stream_not_even_an_empty_one(run, partition, refuses):
    run(Stream.provision(partition))

    with refuses(ConcurrencyConflictError, match="exists already"):
        run(Stream.write(partition, event(1), expected_version=0))


def test_a_transient_value_of_a_stream_that_is_there_is_a_conflict(run, partition, refuses):
    run(Stream.write(partition, event(1), expected_version=0))

    with refuses(ConcurrencyConflictError):
        run(Stream.write(Stream(partition), event(1)))


def test_of_two_writers_with_one_value_the_second_gets_a_conflict(run, partition, refuses):
    stream = run(Stream.write(partition, event(1), expected_version=0)).stream
    run(Stream.write(stream, event(2)))

    with refuses(ConcurrencyConflictError, match="has been changed"):
        run(Stream.write(stream, event(2)))


def test_a_value_of_a_stream_that_was_deleted_is_a_conflict(run, table, partition, refuses):
    stream = run(Stream.provision(partition))
    run(table.transact(partition.key, [Operation.delete("SS-HEAD")]))

    with refuses(ConcurrencyConflictError, match="does not exist"):
        run(Stream.write(stream, event(1)))


def test_a_stream_deleted_and_made_anew_is_another_one(run, table, partition, refuses):
    stream = run(Stream.provision(partition))
    run(table.transact(partition.key, [Operation.delete("SS-HEAD")]))
    run(Stream.provision(partition))

    with refuses(ConcurrencyConflictError):
        run(Stream.write(stream, event(1)))


def test_an_event_row_in_the_way_is_a_conflict(run, table, partition, refuses):
    stream = run(Stream.provision(partition))
    run(table.transact(partition.key, [Operation.insert("SS-SE-0000000001", {})]))

    with refuses(ConcurrencyConflictError, match="SS-SE-0000000001"):
        run(Stream.write(stream, event(1)))


@pytest.mark.parametrize(
    ("events", "expected"),
    [((), 0), ((event(1),), None), ((event(1),), -1)],
    ids=["no event", "no expected version", "a negative one"],
)
def test_a_write_to_a_partition_needs_events_and_a_version(run, partition, refuses, events, expected):
    with refuses(ValueError):
        run(Stream.write(partition, *events, expected_version=expected))


def test_a_stream_value_takes_no_expected_version(run, partition, refuses):
    with refuses(ValueError, match="expected version"):
        run(Stream.write(Stream(partition), event(1), expected_version=0))


@pytest.mark.parametrize("name", ["PartitionKey", "RowKey", "Timestamp", "ETag", "odata.etag", "Version"])
def test_names_that_the_store_needs_are_refused(name):
    with pytest.raises(ValueError, match=name):
        EventData({name: 1})


def test_99_events_fit_into_one_write_and_100_do_not(run, partition, refuses):
    run(Stream.write(partition, *map(event, range(99)), expected_version=0))

    with refuses(PayloadTooLargeError, match="101 operations"):
        run(Stream.write(partition, *map(event, range(100)), expected_version=99))


@pytest.mark.parametrize("expected_version", [0, 1])
@pytest.mark.parametrize(
    "events",
    [[event(n) for n in range(100)], [event(1), EventData({"Large": b"x" * 65537})]],
    ids=["too many events", "a large event after a small one"],
)
def test_a_write_over_a_limit_is_refused_before_the_stream_is_opened(
    run, partition, refuses, expected_version, events
):
    watched = InterceptedTable(partition.table)

    with refuses(PayloadTooLargeError):
        run(Stream.write(Partition(watched, partition.key), *events, expected_version=expected_version))

    assert watched.counts["get"] == watched.counts["query"] == 0


def test_what_the_caller_gave_is_copied():
    properties = {"N": 1, "Nothing": None}
    data = EventData(properties)
    properties["N"] = 2

    assert data.properties == {"N": 1}
    with pytest.raises(TypeError):
        data.properties["N"] = 3  # type: ignore[index]


@pytest.mark.parametrize("events", [[[EventData({"N": 1})]], [{"N": 1}], ["event"]])
def test_what_is_no_event_is_said_to_be_none(run, partition, refuses, events):
    with refuses(TypeError, match=r"give EventData, or \*events for a list"):
        run(Stream.write(partition, *events, expected_version=0))


def test_a_write_goes_to_a_stream_or_a_partition(run, table, refuses):
    with refuses(TypeError, match="goes to a Stream or a Partition, not to a str"):
        run(Stream.write(cast("Partition", "orders-7"), EventData({"N": 1}), expected_version=0))
