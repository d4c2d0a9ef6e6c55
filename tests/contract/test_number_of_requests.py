"""What each verb costs: the figures of docs/event-store.md."""

from collections.abc import Callable
from typing import Any

import pytest

from eventstore import (
    EventData,
    ExpectedVersion,
    Include,
    InterceptedTable,
    Partition,
    Stream,
    connect,
    list_streams,
    split_streams,
)
from tests.support.postgresql import PostgresProxy

ANY = ExpectedVersion.ANY
NEW = EventData({"N": 9}, id="new", includes=[Include.insert("row", {})])
KNOWN = [EventData({"N": number}, id=f"id-{number}") for number in (1, 2, 3)]


async def collect(items):
    return [item async for item in items]


def elsewhere(stream: Stream) -> Partition:
    """Return a partition without a stream."""
    return Partition(stream.partition.table, "elsewhere")


# Each is carried out on a stream with three events that have ids.
PRICES: dict[str, tuple[Callable[[Stream], Any], dict[str, int]]] = {
    "provision": (lambda s: Stream.provision(elsewhere(s)), {"transact": 1}),
    "open": (lambda s: Stream.open(s.partition), {"get": 1}),
    "try_open": (lambda s: Stream.try_open(elsewhere(s)), {"get": 1}),
    "try_open_with": (
        lambda s: Stream.try_open_with(s.partition, "SS-IDX-~", select=["N"], header=[]),
        {"query": 1},
    ),
    "exists": (lambda s: Stream.exists(s.partition), {"query": 1}),
    "write, stream value": (lambda s: Stream.write(s, NEW, properties={"P": 1}), {"transact": 1}),
    "write, version 0": (lambda s: Stream.write(elsewhere(s), NEW, expected_version=0), {"transact": 1}),
    "write, no stream": (
        lambda s: Stream.write(elsewhere(s), NEW, expected_version=ExpectedVersion.NO_STREAM),
        {"transact": 1},
    ),
    "write, version n": (
        lambda s: Stream.write(s.partition, NEW, expected_version=3),
        {"get": 1, "transact": 1},
    ),
    "write, any version": (
        lambda s: Stream.write(s.partition, NEW, expected_version=ANY),
        {"get": 1, "transact": 1},
    ),
    "write, idempotent": (lambda s: Stream.write(s, NEW, idempotent=True), {"transact": 1}),
    "write, idempotent, repeated, version 0": (
        lambda s: Stream.write(s.partition, *KNOWN, expected_version=0, idempotent=True),
        {"transact": 1, "get": 3, "query": 1},
    ),
    "write, idempotent, repeated, version n": (
        lambda s: Stream.write(s.partition, *KNOWN[1:], expected_version=1, idempotent=True),
        {"get": 1 + 2, "query": 2},
    ),
    "write, idempotent, repeated, any version": (
        lambda s: Stream.write(s.partition, *KNOWN[2:], expected_version=ANY, idempotent=True),
        {"get": 1 + 1, "transact": 1, "query": 2},
    ),
    "set_properties": (lambda s: Stream.set_properties(s, {"P": 1}), {"transact": 1}),
    "read": (lambda s: Stream.read(s.partition), {"query": 1}),
    "read, selected": (lambda s: Stream.read(s.partition, select=["N"], header=["P"]), {"query": 1}),
    "read, later version": (lambda s: Stream.read(s.partition, 2), {"query": 2}),
    "read, past the end": (lambda s: Stream.read(s.partition, 9), {"query": 1}),
    "try_read": (lambda s: Stream.try_read(elsewhere(s)), {"query": 1}),
    "read_backwards": (lambda s: Stream.read_backwards(s.partition, 2), {"query": 2}),
    "read_last": (lambda s: Stream.read_last(s.partition, 2), {"query": 2}),
    "iterate": (lambda s: collect(Stream.iterate(s.partition)), {"query": 1}),
    "iterate, later version": (lambda s: collect(Stream.iterate(s.partition, 2)), {"query": 2}),
    "read_events": (lambda s: Stream.read_events(s, 1, 3), {"query": 1}),
    "truncate": (lambda s: Stream.truncate(s, 3), {"query": 2, "transact": 1}),
    "delete": (Stream.delete, {"query": 2, "transact": 1}),
    "delete, partition": (lambda s: Stream.delete(s.partition), {"get": 1, "query": 2, "transact": 1}),
    "list_streams": (lambda s: collect(list_streams(s.partition.table)), {"scan": 1}),
    "split_streams": (lambda s: split_streams(s.partition.table, 4), {"scan": 1}),
}


@pytest.fixture
def watched(table):
    return InterceptedTable(table)


@pytest.fixture
def stream(run, watched):
    stream = run(Stream.write(Partition(watched, "orders-7"), *KNOWN, expected_version=0)).stream
    watched.counts.clear()
    return stream


@pytest.mark.parametrize("verb", PRICES)
def test_each_verb_has_its_price(run, watched, stream, verb):
    action, price = PRICES[verb]

    run(action(stream))

    assert watched.counts == price


def test_there_is_a_price_for_every_verb():
    verbs = {name for name, value in vars(Stream).items() if isinstance(value, classmethod)}

    assert {verb.partition(",")[0] for verb in PRICES} == verbs | {"list_streams", "split_streams"}


@pytest.fixture
def proxy(run, postgresql_url):
    proxy = PostgresProxy(postgresql_url)
    running = proxy.running()
    run(running.__aenter__())
    yield proxy
    run(running.__aexit__(None, None, None))


# A merge reads the row first. A transaction that is refused is rolled back, and its rows are read to tell why.
MORE_ON_POSTGRESQL = {
    "write, version n": 1,
    "write, any version": 1,
    "write, idempotent, repeated, version 0": 2,
    "truncate": 1,
}


@pytest.mark.parametrize("verb", PRICES)
def test_on_postgresql_each_request_is_one_round_trip(run, proxy, table_name, verb):
    action, price = PRICES[verb]
    store = connect(proxy.url)
    table = run(store.table(table_name))
    stream = run(Stream.write(Partition(table, "orders-7"), *KNOWN, expected_version=0)).stream
    before = proxy.round_trips

    run(action(stream))

    assert proxy.round_trips - before == sum(price.values()) + MORE_ON_POSTGRESQL.get(verb, 0)
    run(store.close())
