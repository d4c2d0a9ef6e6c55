"""The synchronous face: the same verbs, for code that does not await."""

import asyncio
import inspect
import threading
from concurrent.futures import Future

import pytest

from eventstore import ConcurrencyConflictError, EventData, KeyRange, Partition, Stream, connect
from eventstore.sync import BlockingStore
from tests.support.streams import events


@pytest.fixture
def blocking(store_url):
    with BlockingStore(store_url) as store:
        yield store


@pytest.fixture
def order(blocking, table_name):
    """Give a partition of a table of its own."""
    return Partition(blocking.table(table_name), "orders-7")


def test_every_verb_of_a_stream_is_there():
    verbs = {name for name, value in inspect.getmembers(Stream, inspect.ismethod) if not name.startswith("_")}

    assert verbs - {"write"} < set(vars(BlockingStore))
    assert "write" in vars(BlockingStore)


def test_a_stream_is_written_read_and_deleted(blocking, order):
    assert not blocking.exists(order)
    assert blocking.try_open(order) is None
    assert blocking.try_read(order) is None
    stream = blocking.provision(order, {"Owner": "me"})
    stream = blocking.write(stream, EventData({"N": 1}), EventData({"N": 2})).stream
    for first in range(3, 1203, 50):
        stream = blocking.write(stream, *events(first, first + 49)).stream
    stream = blocking.set_properties(stream, {"Owner": "you"})

    assert blocking.open(order) == stream
    assert len(blocking.read(order, 1200).events) == 3
    assert [event.version for event in blocking.read_backwards(order, 2).events] == [2, 1]
    assert [event.version for event in blocking.read_last(order, 2).events] == [1201, 1202]
    assert [event.version for event in blocking.read_events(stream, 5, 6)] == [5, 6]
    assert [event.properties["N"] for event in blocking.iterate(order)] == list(range(1, 1203))
    assert "orders-7" in [found.partition.key for found in blocking.list_streams(order.table)]
    assert blocking.split_streams(order.table, 1) == [KeyRange()]
    stream = blocking.truncate(stream, 1200)
    assert stream.first_version == 1200
    blocking.delete(stream)
    assert not blocking.exists(order)


def test_it_works_beside_an_event_loop_as_in_a_notebook_and_errors_are_those_of_the_verbs(blocking, order):
    async def cell():
        return blocking.provision(order).version

    assert asyncio.run(cell()) == 0
    with pytest.raises(ConcurrencyConflictError):
        blocking.provision(order)


def test_its_thread_ends_with_it_and_its_url_shows_no_secret(store_url):
    before = set(threading.enumerate())

    with BlockingStore(store_url) as store:
        store.table("blocking")
        assert store.url == connect(store_url).url

    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("store_url", ["azurite"], indirect=True)  # the others never wait
def test_an_interrupted_call_is_cancelled(blocking, monkeypatch):
    async def wait():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def wait_for_the_result(_future):
        monkeypatch.undo()
        begun.wait()
        raise KeyboardInterrupt

    begun, ended = threading.Event(), threading.Event()
    monkeypatch.setattr(Future, "result", wait_for_the_result)

    with pytest.raises(KeyboardInterrupt):
        blocking.run(wait())

    assert ended.wait(timeout=10)
