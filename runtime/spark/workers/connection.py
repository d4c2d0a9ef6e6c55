"""Connections of Spark's Python processes: one for each store, table and thread, kept as long as the process lives."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import SparkSession

from eventstore import Scope, Store, Table, connect, drive
from eventstore.port import MayBeReplaced
from runtime.batch_options import TablePlace
from runtime.errors import UsageError
from runtime.spark.sessions.kinds import master_of, may_be_local
from runtime.spark.workers.concurrency import ConcurrencyLimit, Wait
from runtime.spark.workers.group_commit import GroupCommit

if TYPE_CHECKING:
    from runtime.spark.workers.event_loop import EventLoop

T = TypeVar("T")


_connections: dict[tuple[int, int, TablePlace, TablePlace | None], Connection] = {}


class Connection:
    """A table, and the way to await its calls; and a second table, the same one unless another place is given.

    A store of this machine needs no event loop: its coroutines wait for nothing but the commit that they share. For a
    store on the network one loop lives as long as the process, and several coroutines are under way at once.
    """

    def __init__(self, place: TablePlace, other: TablePlace | None = None, *, make: bool = True) -> None:
        self.store = connect(place.store)
        elsewhere = None if other is None else connect(other.store)
        self.stores: list[Store] = [self.store] if elsewhere is None else [self.store, elsewhere]
        self.scope: Scope = (
            "network" if any(store.scope == "network" for store in self.stores) else self.store.scope
        )
        self._loop = _new_loop() if self.scope == "network" else None
        self._group = GroupCommit()
        try:
            self.table = self._open(self.store, place.table, make=make)
            self.other = self.table
            if elsewhere is not None and other is not None:
                self.other = self._open(elsewhere, other.table, make=make)
        except BaseException:
            self.close()  # nobody else can: the error is all that is left of it
            raise

    @property
    def is_replaced(self) -> bool:
        """Whether a store is a file that was deleted, or made anew, since it was opened."""
        return any(isinstance(store, MayBeReplaced) and store.is_replaced() for store in self.stores)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run one coroutine to its end."""
        return drive(coroutine) if self._loop is None else self._loop.run(coroutine)

    def close(self) -> None:
        """Give back the stores' connections."""
        for store in self.stores:
            self.run(store.close())
        if self._loop is not None:
            self._loop.close()

    def measured(self, table: Table, concurrency: ConcurrencyLimit) -> Table:
        """Return the table, with its calls taken note of where several coroutines may be under way."""
        return table if self._loop is None else concurrency.measured(table)

    def run_all(
        self, work: Iterable[Coroutine[Any, Any, T] | Wait], concurrency: ConcurrencyLimit
    ) -> Iterator[T]:
        """Run coroutines, as many at once as `concurrency` allows, and give their results as they end.

        The next coroutine is asked for only when there is room for it, and when a `Wait` before it has ended. When one
        raises, the others are cancelled.
        """
        if self._loop is None:
            yield from self._group.run_all(work, concurrency.most)
        else:
            yield from self._loop.run_all(work, concurrency)

    def _open(self, store: Store, name: str, *, make: bool) -> Table:
        table: Table = self.run(store.table(name, make=make))
        return self._group.around(table) if self._loop is None else table


def _new_loop() -> EventLoop:
    # asyncio takes a worker some time to import, which a store of this machine does not need.
    from runtime.spark.workers.event_loop import EventLoop  # noqa: PLC0415 - see above

    return EventLoop()


def open_table(
    store_url: str, table_name: str, other: TablePlace | None = None, *, make: bool = True
) -> Connection:
    """Return this thread's connection to a table, and to a second one: an event loop belongs to one thread.

    With `make=False` a table that is not there is not made: raises `TableNotFoundError`.
    """
    place = TablePlace(store_url, table_name)
    key = (os.getpid(), threading.get_ident(), place, None if other == place else other)
    if key in _connections and _connections[key].is_replaced:
        _connections.pop(key).close()
    if key not in _connections:
        _connections[key] = Connection(place, key[-1], make=make)
    return _connections[key]


@atexit.register
def _close_all() -> None:
    """Close the connections of this process; those inherited from a parent are left alone."""
    for (process, *_), connection in _connections.items():
        if process == os.getpid():
            connection.close()
    _connections.clear()


def check_reach(connection: Connection, spark: SparkSession) -> None:
    """Raise `UsageError` when the workers of a session would not see the same store as the driver."""
    for store in connection.stores:
        check_scope(store.scope, master_of(spark))


def check_scope(scope: Scope, master: str) -> None:
    """Raise `UsageError` when the workers of a master would not see a store of this scope as the driver does."""
    if scope == "process":
        message = "A memory: store is seen by one process only, and Spark has several: use sqlite:///FILE."
        raise UsageError(message)
    if scope == "machine" and not may_be_local(master):
        message = (
            f"An SQLite store is a file of this machine, and the workers of {master} may run on others: use a "
            f"local master, or a store on the network."
        )
        raise UsageError(message)
