from __future__ import annotations

import pytest

from eventstore import (
    ConcurrencyConflictError,
    EventData,
    ExpectedVersion,
    Include,
    InterceptedTable,
    Partition,
    StoreUnavailableError,
    Stream,
    StreamDeletedError,
    StreamNotFoundError,
    list_streams,
)


def numbered(count):
    return [EventData({"N": number}, id=f"id-{number}") for number in range(1, count + 1)]


@pytest.fixture
def stream(run, partition):
    """Give a stream with 3 events, properties and an included row."""
    return run(
        Stream.write(
            partition,
            *numbered(3),
            expected_version=0,
            properties={"Owner": "me"},
            includes=[Include.insert("mine", {"V": 1})],
        )
    ).stream


@pytest.mark.parametrize("by", ["value", "partition"])
def test_a_tombstone_and_the_callers_rows_stay(run, stream, contents, by):
    run(Stream.delete(stream if by == "value" else stream.partition))

    assert [(row.row_key, row.properties) for row in contents()] == [
        ("SS-HEAD", {"Version": 3, "FirstVersion": 4, "Tombstone": True}),
        ("mine", {"V": 1}),
    ]


def test_a_deleted_stream_is_not_there(run, stream):
    async def keys():
        return [found async for found in list_streams(stream.partition.table)]

    run(Stream.delete(stream))

    assert not run(Stream.exists(stream.partition))
    assert run(keys()) == []


@pytest.mark.parametrize(
    "look",
    [
        Stream.open,
        Stream.try_open,
        Stream.read,
        Stream.try_read,
        Stream.read_backwards,
        Stream.read_last,
        lambda partition: Stream.read(partition, select=["N"]),
        lambda partition: Stream.read(partition, 2),
        lambda partition: Stream.read_last(partition, select=["N"]),
        lambda partition: anext(Stream.iterate(partition)),
    ],
)
def test_whoever_looks_is_told(run, stream, look):
    async def awaited():
        return await look(stream.partition)

    run(Stream.delete(stream))

    with pytest.raises(StreamDeletedError, match="orders-7 was deleted"):
        run(awaited())


@pytest.mark.parametrize(
    ("expected", "error"),
    [
        (0, ConcurrencyConflictError),
        (ExpectedVersion.NO_STREAM, ConcurrencyConflictError),
        (ExpectedVersion.EMPTY, StreamDeletedError),
        (ExpectedVersion.ANY, StreamDeletedError),
        (3, StreamDeletedError),
    ],
)
def test_nothing_is_written_in_its_place(run, stream, refuses, expected, error):
    run(Stream.delete(stream))

    with refuses(error):
        run(Stream.write(stream.partition, EventData({"N": 4}), expected_version=expected))


def test_it_cannot_be_provisioned_again(run, stream, refuses):
    run(Stream.delete(stream))

    with refuses(ConcurrencyConflictError):
        run(Stream.provision(stream.partition))


def test_whoever_holds_the_stream_gets_a_conflict(run, stream, refuses):
    run(Stream.delete(stream))

    with refuses(ConcurrencyConflictError):
        run(Stream.write(stream, EventData({"N": 4})))
    with refuses(ConcurrencyConflictError):
        run(Stream.set_properties(stream, {}))
    with refuses(ConcurrencyConflictError):
        run(Stream.truncate(stream, 2))


def test_a_stream_that_was_written_meanwhile_is_not_deleted(run, stream, refuses):
    run(Stream.write(stream, EventData({"N": 4})))

    with refuses(ConcurrencyConflictError):
        run(Stream.delete(stream))


def test_deleting_it_again_changes_nothing(run, stream, refuses, contents):
    run(Stream.delete(stream))
    before = contents()

    run(Stream.delete(stream.partition))

    assert contents() == before
    with refuses(ConcurrencyConflictError):
        run(Stream.delete(stream))


def test_an_empty_stream_is_deleted(run, partition, contents):
    run(Stream.delete(run(Stream.provision(partition, {"Owner": "me"}))))

    assert [row.properties for row in contents()] == [{"Version": 0, "FirstVersion": 1, "Tombstone": True}]


def test_a_stream_that_is_not_there_cannot_be_deleted(run, partition, refuses):
    with refuses(StreamNotFoundError):
        run(Stream.delete(partition))
    with refuses(ValueError, match="transient"):
        run(Stream.delete(Stream(partition)))


def test_sibling_streams_stay(run, table):
    first, second = Partition(table, "orders", "a"), Partition(table, "orders", "b")
    for partition in (first, second):
        run(Stream.write(partition, *numbered(2), expected_version=0))

    run(Stream.delete(first))

    assert len(run(Stream.read(second)).events) == 2


@pytest.mark.parametrize("transactions", [1, 2, 3])
@pytest.mark.parametrize("took_effect", [False, True])
def test_a_deletion_that_was_broken_off_is_finished(
    run, table, partition, contents, transactions, took_effect
):
    def break_off(name, _partition_key, _number, *_result):
        if name == "transact" and watched.counts["transact"] == transactions:
            message = "broken off"
            raise StoreUnavailableError(message, outcome_unknown=True)

    watched = InterceptedTable(table, **{"after" if took_effect else "before": break_off})
    run(Stream.write_in_parts(partition, numbered(140), expected_version=0))

    with pytest.raises(StoreUnavailableError):
        run(Stream.delete(Partition(watched, "orders-7")))
    if transactions > 1 or took_effect:
        assert not run(Stream.exists(partition))
    else:
        assert len(run(Stream.read(partition)).events) == 140
    run(Stream.delete(partition))

    assert [row.row_key for row in contents()] == ["SS-HEAD"]
