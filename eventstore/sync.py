"""The event store for blocking code: scripts, notebooks, the interactive interpreter.

    with BlockingStore("sqlite:///orders.db") as store:
        order = Partition(store.table("orders"), "order-7")
        store.write(order, EventData({"Type": "Created"}), expected_version=0)
        for event in store.iterate(order):
            print(event.version, event.properties)

The methods are those of `Stream`. They work within a running event loop too, as in a notebook.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from eventstore.connect import connect
from eventstore.port import Table, drive
from eventstore.stream import Stream, list_streams, split_streams

T = TypeVar("T")
P = ParamSpec("P")


def _blocking(verb: Callable[P, Coroutine[Any, Any, T]]) -> Callable[Concatenate[BlockingStore, P], T]:
    @wraps(verb)
    def call(store: BlockingStore, /, *args: P.args, **options: P.kwargs) -> T:
        return store.run(verb(*args, **options))

    return call


def _iterating(verb: Callable[P, AsyncIterator[T]]) -> Callable[Concatenate[BlockingStore, P], Iterator[T]]:
    @wraps(verb)
    def call(store: BlockingStore, /, *args: P.args, **options: P.kwargs) -> Iterator[T]:
        return store.give(verb(*args, **options))

    return call


class BlockingStore:
    """A store with blocking versions of the methods of `Stream`, and of `list_streams` and `split_streams`.

    Use `run` for any other coroutine, and `give` for any other asynchronous iterator.
    """

    provision = _blocking(Stream.provision)
    open = _blocking(Stream.open)
    try_open = _blocking(Stream.try_open)
    try_open_with = _blocking(Stream.try_open_with)
    exists = _blocking(Stream.exists)
    write = _blocking(Stream.write)
    set_properties = _blocking(Stream.set_properties)
    read = _blocking(Stream.read)
    try_read = _blocking(Stream.try_read)
    read_backwards = _blocking(Stream.read_backwards)
    read_last = _blocking(Stream.read_last)
    read_events = _blocking(Stream.read_events)
    iterate = _iterating(Stream.iterate)
    truncate = _blocking(Stream.truncate)
    delete = _blocking(Stream.delete)
    list_streams = _iterating(list_streams)
    split_streams = _blocking(split_streams)

    def __init__(self, url: str) -> None:
        self._store = connect(url)
        self._loop: asyncio.AbstractEventLoop | None = None
        if self._store.scope == "network":
            # A daemon thread, since an unclosed store must not keep the interpreter alive.
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="eventstore-blocking", daemon=True
            )
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The URL without its secrets."""
        return self._store.url

    def table(self, name: str, *, make: bool = True) -> Table:
        """Open a table. Create a missing table, or raise `TableNotFoundError` if `make` is False."""
        return self.run(self._store.table(name, make=make))

    def close(self) -> None:
        """Release connections and files, and end the network thread."""
        self.run(self._store.close())
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that awaits only this store, and return its result. An interrupt cancels the coroutine."""
        if self._loop is None:
            return drive(coroutine)
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def give(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an asynchronous iterator that awaits only this store."""
        while True:
            try:
                yield self.run(_next(items))
            except StopAsyncIteration:
                return


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)
