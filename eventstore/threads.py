"""A SQLite store for programs with an event loop: its calls are made in threads.

    store = ThreadedStore(connect("sqlite:///orders.db"))

SQLite waits where it is called. In an event loop nothing else happens until it returns, and while another process
holds the lock of the file that can take long. In a thread of its own only the caller waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from eventstore.driving import drive
from eventstore.port import Operation, Page, Row, Scope, Store, Table, place_of

T = TypeVar("T")


class Threads:
    """Threads in which coroutines run that never suspend."""

    def __init__(self, number: int) -> None:
        self._pool = ThreadPoolExecutor(number, thread_name_prefix="eventstore")

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in one of the threads. A caller that is cancelled no longer waits, but the call goes on."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, drive, coroutine)

    async def end(self) -> None:
        """Wait for what the threads are doing, and end them."""
        await asyncio.to_thread(self._pool.shutdown)


class ThreadedTable(Table):
    """A table whose calls are made in threads."""

    scope: Scope = "network"

    def __init__(self, table: Table, threads: Threads) -> None:
        self.name, self.store_url = place_of(table)
        self._table = table
        self._run = threads.run

    async def get(self, partition_key: str, row_key: str) -> Row | None:
        return await self._run(self._table.get(partition_key, row_key))

    async def query(
        self,
        partition_key: str,
        first: str,
        last: str,
        *,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        return await self._run(
            self._table.query(partition_key, first, last, select=select, continuation=continuation)
        )

    async def scan(
        self,
        row_key: str | None,
        first: str = "",
        last: str | None = None,
        *,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        return await self._run(
            self._table.scan(row_key, first, last, select=select, continuation=continuation)
        )

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        return await self._run(self._table.transact(partition_key, operations))

    async def barrier(self) -> None:
        await self._run(self._table.barrier())


class ThreadedStore(Store):
    """A store of one machine or process whose calls are made in threads, so that no event loop waits for them.

    Its calls suspend, like those of a store on the network: that is the scope that it has. SQLite has one writer at a
    time; with several threads others read meanwhile.
    """

    scope: Scope = "network"

    def __init__(self, store: Store, threads: int = 4) -> None:
        if store.scope == "network":
            raise ValueError(f"The calls of {store.url} suspend already: they need no threads.")
        self.url = store.url
        self._store = store
        self._threads = Threads(threads)

    async def table(self, name: str, *, make: bool = True) -> ThreadedTable:
        return ThreadedTable(await self._threads.run(self._store.table(name, make=make)), self._threads)

    async def close(self) -> None:
        """Wait for calls that are under way, end the threads, and close the store."""
        await self._threads.end()
        await self._store.close()
