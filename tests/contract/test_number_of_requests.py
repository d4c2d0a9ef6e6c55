from __future__ import annotations

import pytest

from eventstore import EventData, Include, InterceptedTable, Partition, Stream


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
    changed, cost = price(Stream.set_properties(opened, {"P": 2}))
    assert cost == {"transact": 1}
    _, cost = price(Stream.truncate(changed, 3))
    assert cost == {"query": 2, "transact": 1}
    _, cost = price(Stream.read(partition))
    assert cost == {"query": 1}
    assert written.stream.version == 2
