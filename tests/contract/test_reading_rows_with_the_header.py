"""Included rows that sort right behind the header are read together with it."""

from __future__ import annotations

import pytest

from eventstore import (
    ConcurrencyConflictError,
    EventData,
    ExpectedVersion,
    Include,
    InterceptedTable,
    Operation,
    Partition,
    Stream,
)
from eventstore.reading import READ_ATTEMPTS


@pytest.fixture
def stream(run, partition):
    """Give a stream with two events, two index rows, and a row behind the events."""
    includes = [Include.insert(f"SS-IDX-{number}", {"N": number, "M": 1}) for number in (1, 2)]
    includes.append(Include.insert("mine", {"N": 3}))
    events = [EventData({"N": 10}), EventData({"N": 20})]
    written = Stream.write(
        partition, *events, expected_version=0, properties={"P": 1, "Q": 2}, includes=includes
    )
    return run(written).stream


def open_with(run, partition, last="SS-IDX-~"):
    return run(Stream.try_open_with(partition, last, select=["N"], header=["P"]))


def test_header_and_rows_come_without_the_events(run, stream):
    found, rows = open_with(run, stream.partition)

    assert (found.version, found.etag, found.properties) == (2, stream.etag, {"P": 1})
    assert [(row.row_key, row.properties) for row in rows] == [("SS-IDX-1", {"N": 1}), ("SS-IDX-2", {"N": 2})]


def test_a_stream_that_is_not_there_is_none(run, table, partition):
    run(table.transact("orders-7", [Operation.insert("SS-IDX-1", {"N": 1})]))

    assert open_with(run, partition) is None


@pytest.fixture
def many_rows(run, table, partition):
    """Give a stream with rows for two pages."""
    stream = run(Stream.provision(partition))
    for start in range(0, 1200, 100):
        rows = [Operation.insert(f"SS-IDX-{number:04}", {}) for number in range(start, start + 100)]
        run(table.transact("orders-7", rows))
    return stream


def test_a_change_between_two_pages_starts_the_read_again(run, table, many_rows, pauses):
    async def change(name, _partition_key, number, _result):
        if number == 1:
            drop = Include.delete("SS-IDX-0000", "*")
            await Stream.write(many_rows, EventData({}), includes=[drop])

    watched = InterceptedTable(table, after=change)

    found, rows = open_with(run, Partition(watched, "orders-7"))

    assert (found.version, len(rows)) == (1, 1199)
    assert len(pauses) == 1


def test_rows_that_change_each_time_are_given_up_after_longer_and_longer_pauses(
    run, table, many_rows, pauses
):
    async def append(_name, _partition_key, _number):
        await Stream.write(many_rows.partition, EventData({}), expected_version=ExpectedVersion.ANY)

    watched = InterceptedTable(table, before=append)

    with pytest.raises(ConcurrencyConflictError, match="each time"):
        open_with(run, Partition(watched, "orders-7"))

    assert len(pauses) == READ_ATTEMPTS - 1
    assert pauses[0] < pauses[2] < pauses[4]


def test_a_truncation_can_change_rows_with_its_first_transaction(run, stream, contents):
    run(Stream.truncate(stream, 3, {"P": 2}, [Include.delete("SS-IDX-1", "*")]))

    assert [row.row_key for row in contents()] == ["SS-HEAD", "SS-IDX-2", "mine"]


def test_a_truncation_of_nothing_changes_rows_all_the_same(run, stream, contents):
    run(Stream.truncate(stream, 1, includes=[Include.delete("mine", "*")]))

    assert "mine" not in [row.row_key for row in contents()]
