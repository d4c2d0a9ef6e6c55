from __future__ import annotations

import pytest

from eventstore import (
    EventData,
    ExpectedVersion,
    Include,
    InterceptedTable,
    Partition,
    Stream,
    list_streams,
    split_streams,
)


async def collect(items):
    return [item async for item in items]


@pytest.fixture
def watched(table):
    return InterceptedTable(table)


@pytest.fixture
def partition(watched):
    return Partition(watched, "orders-7")


def test_each_verb_has_its_price(run, watched, partition):
    def price(work):
        before = watched.counts.copy()
        result = run(work)
        return result, dict(watched.counts - before)

    event = EventData({"N": 1}, id="i", includes=[Include.insert("row", {})])

    stream, cost = price(Stream.provision(partition))
    assert cost == {"transact": 1}
    written, cost = price(Stream.write(stream, event, EventData({"N": 2}), properties={"P": 1}))
    assert cost == {"transact": 1}
    _, cost = price(Stream.write(partition, EventData({"N": 3}), expected_version=2))
    assert cost == {"get": 1, "transact": 1}
    _, cost = price(Stream.write(Partition(watched, "orders-8"), EventData({"N": 1}), expected_version=0))
    assert cost == {"transact": 1}
    any_version = {"expected_version": ExpectedVersion.ANY}
    again, cost = price(Stream.write(partition, EventData({"N": 4}, id="j"), **any_version, idempotent=True))
    assert cost == {"get": 1, "transact": 1}
    again, cost = price(Stream.write(partition, EventData({"N": 4}, id="j"), **any_version, idempotent=True))
    assert (again.repeated, cost) == (True, {"get": 2, "transact": 1, "query": 2})
    many = [EventData({"N": number}) for number in range(200)]
    _, cost = price(Stream.write_in_parts(Partition(watched, "orders-9"), many, expected_version=0))
    assert cost == {"transact": 3}
    _, cost = price(Stream.exists(partition))
    assert cost == {"query": 1}
    opened, cost = price(Stream.open(partition))
    assert cost == {"get": 1}
    _, cost = price(Stream.read(partition))
    assert cost == {"query": 1}
    _, cost = price(Stream.read(partition, select=["N"], header=["P"]))
    assert cost == {"query": 1}
    _, cost = price(Stream.read(partition, 2))
    assert cost == {"query": 2}
    _, cost = price(Stream.read(partition, 9))
    assert cost == {"query": 1}
    _, cost = price(Stream.read_events(opened, 1, 3))
    assert cost == {"query": 1}
    _, cost = price(Stream.read_backwards(partition, 2))
    assert cost == {"query": 2}
    _, cost = price(Stream.read_last(partition, 2))
    assert cost == {"query": 2}
    _, cost = price(collect(Stream.iterate(partition)))
    assert cost == {"query": 1}
    _, cost = price(collect(Stream.iterate(partition, 2)))
    assert cost == {"query": 2}
    _, cost = price(collect(list_streams(watched)))
    assert cost == {"scan": 1}
    _, cost = price(split_streams(watched, 4))
    assert cost == {"scan": 1}
    changed, cost = price(Stream.set_properties(opened, {"P": 2}))
    assert cost == {"transact": 1}
    cut, cost = price(Stream.truncate(changed, 3))
    assert cost == {"query": 2, "transact": 1}
    _, cost = price(Stream.read(partition))
    assert cost == {"query": 1}
    _, cost = price(Stream.delete(cut))
    assert cost == {"query": 2, "transact": 1}
    _, cost = price(Stream.delete(Partition(watched, "orders-8")))
    assert cost == {"get": 1, "query": 2, "transact": 1}
    assert written.stream.version == 2
