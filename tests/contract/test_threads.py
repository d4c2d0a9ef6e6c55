"""Calls in threads: an event loop goes on while SQLite waits for another process."""

from __future__ import annotations

import asyncio
import sqlite3
import threading

import pytest

from eventstore import (
    ConcurrencyConflictError,
    EventData,
    Operation,
    Page,
    Partition,
    Stream,
    TableNotFoundError,
    connect,
)
from eventstore.threads import ThreadedStore

TURNS = 100

both = pytest.mark.parametrize("store_url", ["memory", "sqlite"], indirect=True)


@pytest.fixture
def threaded(run, store_url):
    store = ThreadedStore(connect(store_url))
    yield store
    run(store.close())


@pytest.fixture
def place(run, threaded):
    return Partition(run(threaded.table("orders")), "orders-7")


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_other_tasks_go_on_while_another_process_holds_the_lock(run, place, tmp_path):
    """The lock is given back when another task has had its turns: an event loop that stands still never gets there."""

    async def write_behind_the_lock():
        other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        write = asyncio.create_task(Stream.write(place, EventData({"N": 1}), expected_version=0))
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert not write.done()
        other.execute("ROLLBACK")
        other.close()
        return await write

    assert run(write_behind_the_lock()).stream.version == 1


@both
def test_the_verbs_are_those_of_the_store(run, threaded, place):
    async def collect():
        return [event.properties async for event in Stream.iterate(place)]

    stream = run(Stream.write(place, EventData({"N": 1}, id="one"), expected_version=0)).stream
    run(Stream.write(stream, EventData({"N": 2})))

    assert run(collect()) == [{"N": 1}, {"N": 2}]
    with pytest.raises(ConcurrencyConflictError):
        run(Stream.write(stream, EventData({"N": 2})))
    with pytest.raises(TableNotFoundError):
        run(threaded.table("missing", make=False))
    run(place.table.barrier())


@both
def test_each_call_of_a_table_is_made_in_a_thread(run, place):
    table = place.table
    run(table.transact("p", [Operation.insert("r", {"A": 1, "B": 2})]))

    assert run(table.get("p", "r")).properties == {"A": 1, "B": 2}
    assert run(table.query("p", "a", "z", select=["A"])).rows[0].properties == {"A": 1}
    assert run(table.scan("r", "p", "p", select=["B"])).rows[0].properties == {"B": 2}
    assert run(table.query("p", "s", "z")) == Page(())


@both
def test_a_closed_store_leaves_no_thread(run, store_url):
    before = threading.active_count()
    store = ThreadedStore(connect(store_url))
    run(store.table("orders"))

    run(store.close())

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("eventstore")]
    assert threading.active_count() <= before + 1  # asyncio's own, for ending the others


@both
def test_its_calls_suspend_like_those_of_the_network(threaded, place):
    assert (threaded.scope, place.table.scope) == ("network", "network")
    with pytest.raises(ValueError, match="need no threads"):
        ThreadedStore(connect("azurite"))
