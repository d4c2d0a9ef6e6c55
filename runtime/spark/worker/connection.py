"""Connections of Spark's Python processes, cached by store, table and thread, and the scheduling of streams on them."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from math import inf, sqrt
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import SparkSession

from eventstore import InterceptedTable, Operation, Row, Scope, Store, Table, connect, drive
from eventstore.errors import StoreUnavailableError
from eventstore.port import MayBeReplaced, MultiPartitionTable, Transaction, TransactionResult, attempt_each
from runtime.batch_options import TablePlace, Wrap
from runtime.errors import UsageError
from runtime.ledger.settings import TableSettings
from runtime.spark.session import master_of, may_be_local

if TYPE_CHECKING:
    import asyncio

FEWEST = 2
_FIRST = 8
_WINDOW = 16  # the minimum number of calls to average
_TOLERANCE = 2.0  # the acceptable time of a call, as a multiple of the best
_WINDOWS = 100
"""The number of windows after which the best time is measured again, because a store may have become slower."""

T = TypeVar("T")
Work = Coroutine[Any, Any, T]
_Waiting = deque[tuple[Work[T], "Pending"]]


class Wait(Enum):
    """An item in a sequence of work that delays the items after it."""

    FOR_ONE = "one"  # until any of the work before it has ended
    FOR_ALL = "all"  # until all work before it has ended
    FOR_NEXT = "next"  # until the next work has ended, which commits alone; no-op on the network


class ConcurrencyLimit:
    """Limits the streams in flight. The limit rises while calls are fast, as in Netflix's concurrency-limits."""

    def __init__(self, most: int) -> None:
        self.most = max(most, 1)
        self._sum, self._count = 0.0, 0
        self._begin()

    def _begin(self) -> None:
        self._limit = float(min(_FIRST, self.most))
        self._best, self._windows = inf, 0

    @property
    def limit(self) -> int:
        """The number of streams that may be in flight."""
        return int(self._limit)

    def answered(self, seconds: float) -> None:
        """Record the duration of a call, and adjust the limit."""
        self._sum += seconds
        self._count += 1
        if self._count < max(_WINDOW, self.limit):
            return
        average = self._sum / self._count
        self._sum, self._count = 0.0, 0
        self._best = min(average, self._best)
        self._windows += 1
        if self._windows > _WINDOWS:
            self._begin()
        elif average <= _TOLERANCE * self._best:
            self._change(self._limit + sqrt(self._limit))
        else:
            # If calls take four times the best time, half of the streams remain.
            self._change(self._limit * _TOLERANCE * self._best / average)

    def failed(self) -> None:
        """Halve the limit, because the service was unavailable or busy."""
        self._sum, self._count = 0.0, 0
        self._change(self._limit / 2)

    def _change(self, limit: float) -> None:
        self._limit = float(min(max(limit, FEWEST), self.most))


class MeasuredTable(InterceptedTable):
    """Reports the times of its calls to a `ConcurrencyLimit`."""

    def __init__(self, table: Table, concurrency: ConcurrencyLimit) -> None:
        super().__init__(table)
        self._concurrency = concurrency

    async def _call(self, name: str, partition_key: str, call: Callable[[], Awaitable[T]]) -> T:
        began = time.perf_counter()
        try:
            result = await super()._call(name, partition_key, call)
        except StoreUnavailableError:
            self._concurrency.failed()
            raise
        self._concurrency.answered(time.perf_counter() - began)
        return result


class EventLoop:
    """Runs the coroutines of one thread with asyncio, for network stores. Other stores need no event loop."""

    def __init__(self) -> None:
        import asyncio  # noqa: PLC0415 - takes time, and only network stores need it

        self._asyncio = asyncio
        self._loop = asyncio.new_event_loop()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._asyncio._get_running_loop() is None:  # noqa: SLF001 - does not raise
            return self._run(coroutine)
        with ThreadPoolExecutor(1) as thread:  # a notebook already runs a loop in this thread
            return thread.submit(self._run, coroutine).result()

    def run_all(self, work: Iterable[Work[T] | Wait], concurrency: ConcurrencyLimit) -> Iterator[T]:
        running: set[asyncio.Task[T]] = set()
        try:
            for each in work:
                if each is Wait.FOR_ONE:
                    running = yield from self._take_finished(running)
                elif each is Wait.FOR_ALL:
                    while running:
                        running = yield from self._take_finished(running)
                elif not isinstance(each, Wait):
                    running.add(self._loop.create_task(each))
                    while len(running) >= concurrency.limit:
                        running = yield from self._take_finished(running)
            while running:
                running = yield from self._take_finished(running)
        finally:
            self._cancel(*running)

    def close(self) -> None:
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        task = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                self._cancel(task)
            raise

    def _cancel(self, *tasks: asyncio.Task[Any]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(self._asyncio.gather(*tasks, return_exceptions=True))

    def _take_finished(self, running: set[asyncio.Task[T]]) -> Generator[T, None, set[asyncio.Task[T]]]:
        done, waiting = self._loop.run_until_complete(
            self._asyncio.wait(running, return_when=self._asyncio.FIRST_COMPLETED)
        )
        while done:
            yield done.pop().result()
        return waiting


class Pending:
    """A transaction that waits for a group commit. Awaiting it returns the result of `transact`."""

    __slots__ = ("table", "transaction")

    def __init__(self, table: MultiPartitionTable, transaction: Transaction) -> None:
        self.table = table
        self.transaction = transaction

    def __await__(self) -> Generator[Pending, tuple[str, ...], tuple[str, ...]]:
        return (yield self)


class GroupCommit:
    """Runs coroutines and commits their transactions in groups, because committing to a file costs more than writing.

    Each coroutine runs until its first write, then waits. When enough coroutines wait, one commit stores all their
    transactions. Each transaction succeeds or fails on its own. No lock is held while handlers run.

    If the commit fails, every coroutine gets the error, and continues with commits of its own. So an unavailable store
    exhausts the retries of each stream as usual.
    """

    is_collecting = False

    def around(self, table: Table) -> Table:
        """Return a table whose transactions wait for a group commit if they come from a coroutine of `run_all`."""
        return _CollectedTable(table, self) if isinstance(table, MultiPartitionTable) else table

    def run_all(self, work: Iterable[Work[T] | Wait], most: int) -> Iterator[T]:
        waiting: _Waiting[T] = deque()
        may_wait = most
        try:
            for each in work:
                if each is Wait.FOR_ONE:
                    yield from self._commit_until(waiting, max(len(waiting) - 1, 0))
                elif each is Wait.FOR_ALL:
                    yield from self._commit_until(waiting, 0)
                elif each is Wait.FOR_NEXT:
                    may_wait = 1
                else:
                    yield from self._go_on(waiting, each, None)
                    yield from self._commit_until(waiting, may_wait - 1)
                    may_wait = most
            yield from self._commit_until(waiting, 0)
        finally:
            for coroutine, _ in waiting:
                coroutine.close()

    def step(self, work: Work[T], answer: TransactionResult | None) -> Pending:
        """Resume a coroutine with the last `answer`. Return its next transaction. Raises `StopIteration` at its end."""
        self.is_collecting = True
        try:
            pending = work.throw(answer) if isinstance(answer, Exception) else work.send(answer)
        finally:
            self.is_collecting = False
        if not isinstance(pending, Pending):
            raise TypeError("The coroutine awaits something else than a store on this machine.")
        return pending

    def _go_on(self, waiting: _Waiting[T], work: Work[T], answer: TransactionResult | None) -> Iterator[T]:
        """Run a coroutine until it waits for a commit or, if a commit failed, until it ends. Then yield its result."""
        ended: list[T] = []
        is_alone = isinstance(answer, StoreUnavailableError)
        try:
            pending = self.step(work, answer)
            while is_alone:
                (answer,) = _commit([pending])
                pending = self.step(work, answer)
            waiting.append((work, pending))
        except StopIteration as end:
            ended.append(end.value)
        while ended:
            yield ended.pop()  # releases the memory

    def _commit_until(self, waiting: _Waiting[T], most: int) -> Iterator[T]:
        """Commit the transactions of all waiting coroutines and resume them, until at most `most` coroutines wait."""
        while len(waiting) > most:
            for answer in _commit([pending for _, pending in waiting]):
                work, _ = waiting.popleft()
                yield from self._go_on(waiting, work, answer)


def _commit(waiting: Sequence[Pending]) -> list[TransactionResult]:
    answers: dict[Pending, TransactionResult] = {}
    for table in dict.fromkeys(pending.table for pending in waiting):
        together = [pending for pending in waiting if pending.table is table]
        results = drive(attempt_each(table, [pending.transaction for pending in together]))
        answers.update(zip(together, results, strict=True))
    return [answers[pending] for pending in waiting]


class _CollectedTable(InterceptedTable):
    def __init__(self, table: MultiPartitionTable, group: GroupCommit) -> None:
        super().__init__(table)
        self._inner = table
        self._group = group

    async def transact_each(self, transactions: Sequence[Transaction]) -> list[TransactionResult]:
        return await self._inner.transact_each(transactions)

    async def query_each(
        self, partition_keys: Sequence[str], first: str, last: str
    ) -> list[tuple[Row, ...] | None]:
        return await self._inner.query_each(partition_keys, first, last)

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        if self._group.is_collecting:
            return await Pending(self._inner, (partition_key, operations))
        return await super().transact(partition_key, operations)


_connections: dict[tuple[int, int, TablePlace, TablePlace | None], Connection] = {}


class Connection:
    """Connection to one or two tables. Runs coroutines, with an event loop if a store is on the network."""

    def __init__(self, place: TablePlace, other: TablePlace | None = None, *, make: bool = True) -> None:
        self.store = connect(place.store)
        self.stores = [self.store] if other is None else [self.store, connect(other.store)]
        is_remote = any(store.scope == "network" for store in self.stores)
        self._loop = EventLoop() if is_remote else None
        self._group = GroupCommit()
        try:
            self.table = self._open(self.store, place.table, make=make)
            self.other = self.table if other is None else self._open(self.stores[1], other.table, make=make)
        except BaseException:
            self.close()
            raise

    @property
    def is_replaced(self) -> bool:
        """Whether a store is a file that was deleted or replaced after it was opened."""
        return any(isinstance(store, MayBeReplaced) and store.is_replaced() for store in self.stores)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return drive(coroutine) if self._loop is None else self._loop.run(coroutine)

    def close(self) -> None:
        for store in self.stores:
            self.run(store.close())
        if self._loop is not None:
            self._loop.close()

    def measured(self, table: Table, concurrency: ConcurrencyLimit, wrap: Wrap | None = None) -> Table:
        """Return the table with `wrap` applied. On the network, its calls also report their times to `concurrency`."""
        table = table if wrap is None else wrap(table)
        return table if self._loop is None else MeasuredTable(table, concurrency)

    def run_all(self, work: Iterable[Work[T] | Wait], concurrency: ConcurrencyLimit) -> Iterator[T]:
        """Run coroutines within `concurrency`. Yield results as they arrive. The first error cancels all others."""
        if self._loop is None:
            yield from self._group.run_all(work, concurrency.most)
        else:
            yield from self._loop.run_all(work, concurrency)

    def _open(self, store: Store, name: str, *, make: bool) -> Table:
        table: Table = self.run(store.table(name, make=make))
        return self._group.around(table) if self._loop is None else table


def open_table(
    store_url: str,
    table_name: str,
    other: TablePlace | None = None,
    *,
    make: bool = True,
    spark: SparkSession | None = None,
) -> Connection:
    """Return this thread's connection to a table, and to `other` if given. `make`: create tables that are missing.

    `spark`: if given, raise `UsageError` unless its workers can access the stores.
    """
    # The cache key is absolute: a relative path or a variable may have another meaning later.
    place, other = TablePlace(store_url, table_name).for_workers(), other and other.for_workers()
    key = (os.getpid(), threading.get_ident(), place, None if other == place else other)
    if key in _connections and _connections[key].is_replaced:
        _connections.pop(key).close()
    if key not in _connections:
        _connections[key] = Connection(TablePlace(store_url, table_name), key[-1], make=make)
    if spark is not None:
        for store in _connections[key].stores:
            check_scope(store.scope, master_of(spark))
    return _connections[key]


def open_current(
    store_url: str,
    table_name: str,
    other: TablePlace | None = None,
    *,
    spark: SparkSession,
    make: bool = True,
) -> tuple[str, Connection]:
    """Open a table, or the table that replaced it. Return its name and connection. Costs a request for each table."""
    connection = open_table(store_url, table_name, other, make=make, spark=spark)
    settings = connection.run(TableSettings.of(connection.table))
    if settings.switched_to is None:
        return table_name, connection
    return open_current(store_url, settings.switched_to, other, spark=spark, make=False)


def reach(app: object, place: TablePlace, other: TablePlace | None = None) -> None:  # noqa: ARG001 - see below
    """Open the tables on a worker, to raise if it cannot. Unpickling `app` has checked that it can import the app."""
    open_table(place.store, place.table, other, make=False)


@atexit.register
def _close_all() -> None:
    for (process, *_), connection in _connections.items():
        if process == os.getpid():  # a forked child must not close its parent's
            connection.close()
    _connections.clear()


def check_scope(scope: Scope, master: str) -> None:
    """Raise `UsageError` if workers of a master could not access a store of this scope."""
    if scope == "process":
        raise UsageError(
            "A memory: store exists in one process only, but Spark has several: use sqlite:///FILE."
        )
    if scope == "machine" and not may_be_local(master):
        raise UsageError(
            f"An SQLite store is a file on this machine, but workers of {master} may run on others: use a local "
            "master, or a store on the network."
        )
