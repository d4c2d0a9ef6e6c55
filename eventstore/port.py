"""The table port: the calls that an event store needs from a table service.

A table holds rows addressed by partition key and row key, with typed properties and an ETag. The backends `memory`,
`sqlite`, `postgres` and `azure` behave alike, errors included. Each call is atomic and costs one request.

Property types: `str`, `bool`, `int` (32 bits), `Int64`, `float`, `datetime` (UTC, microseconds), `UUID` and `bytes`. A
property that is None is absent.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import partial, wraps
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, Self, TypeVar, runtime_checkable
from uuid import UUID
from weakref import WeakKeyDictionary

from eventstore.errors import DamagedRowError, EventStoreError
from eventstore.keys import escape, escape_bound

ANY_ETAG = "*"
"""Matches any ETag."""

PAGE_SIZE = 1000
"""The maximum number of rows of a page."""


class Int64(int):
    """A 64-bit integer property. A plain `int` is stored with 32 bits."""

    __slots__ = ()


Value = str | bool | int | Int64 | float | datetime | UUID | bytes
"""The value of a property."""

Properties = Mapping[str, Value]
"""The properties of a row or an event, by name."""

Scope = Literal["process", "machine", "network"]
"""The scope of a store, from which it can be reached: one process, one machine, or the network."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row that was read. Each write makes a new `etag`. `timestamp` is the time of the write, None if unknown."""

    partition_key: str
    row_key: str
    etag: str
    properties: Properties
    timestamp: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Page:
    """At most 1,000 rows in key order. Pass `continuation` to read the next page. It is None on the last page.

    A page ends early if its rows are large, or before a corrupt row. If the first row is corrupt, the read raises
    `DamagedRowError`.
    """

    rows: tuple[Row, ...]
    continuation: str | None = None


Substitute = Callable[[DamagedRowError], Row]
"""Returns a row to use instead of the corrupt one that the error describes."""


async def pages(
    read: Callable[..., Awaitable[Page]], substitute: Substitute | None = None
) -> AsyncIterator[Page]:
    """Yield the pages of a query or scan. Costs one request per page.

        async for page in pages(partial(table.query, "orders", "A", "Z")):
            ...

    `read` is called with the keyword argument `continuation`. A corrupt row raises `DamagedRowError`, unless
    `substitute` returns a row to use instead.
    """
    continuation = None
    while True:
        try:
            page = await read(continuation=continuation)
        except DamagedRowError as error:
            if substitute is None:
                raise
            page = Page((substitute(error),), error.continuation)
        yield page
        continuation = page.continuation
        if continuation is None:
            return


class Verb(Enum):
    """The kind of change that an operation makes."""

    INSERT = "insert"
    REPLACE = "replace"
    MERGE = "merge"
    INSERT_OR_REPLACE = "insert_or_replace"
    INSERT_OR_MERGE = "insert_or_merge"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of one row in a transaction. A replace, merge or delete is refused if the row's ETag is not `etag`."""

    verb: Verb
    row_key: str
    properties: Properties = field(default_factory=dict)
    etag: str | None = None

    @classmethod
    def insert(cls, row_key: str, properties: Properties) -> Self:
        """Return an operation that inserts a row. Refused if the row already exists."""
        return cls(Verb.INSERT, row_key, properties)

    @classmethod
    def replace(cls, row_key: str, properties: Properties, etag: str | None = ANY_ETAG) -> Self:
        """Return an operation that replaces all properties of a row. Refused for a missing row."""
        return cls(Verb.REPLACE, row_key, properties, etag)

    @classmethod
    def merge(cls, row_key: str, properties: Properties, etag: str | None = ANY_ETAG) -> Self:
        """Return an operation that sets these properties of a row and keeps the others. Refused for a missing row."""
        return cls(Verb.MERGE, row_key, properties, etag)

    @classmethod
    def insert_or_replace(cls, row_key: str, properties: Properties) -> Self:
        """Return an operation that inserts a row or, if it exists, replaces all its properties."""
        return cls(Verb.INSERT_OR_REPLACE, row_key, properties)

    @classmethod
    def insert_or_merge(cls, row_key: str, properties: Properties) -> Self:
        """Return an operation that inserts a row or, if it exists, sets these properties and keeps the others."""
        return cls(Verb.INSERT_OR_MERGE, row_key, properties)

    @classmethod
    def delete(cls, row_key: str, etag: str | None = ANY_ETAG) -> Self:
        """Return an operation that deletes a row. Refused for a missing row."""
        return cls(Verb.DELETE, row_key, {}, etag)


class Table(Protocol):
    """Rows of one table. Callers pass keys unescaped, and backends escape them."""

    scope: Scope
    """The scope of the table's store."""

    async def get(self, partition_key: str, row_key: str) -> Row | None:
        """Read one row. Return None if the row does not exist."""

    async def query(
        self,
        partition_key: str,
        first: str,
        last: str,
        *,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        """Read a page of the rows `first` to `last`, inclusive. `select` names the properties to read, None for all."""

    async def scan(
        self,
        row_key: str | None,
        first: str = "",
        last: str | None = None,
        *,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        """Read a page of the rows with this row key in the partitions `first` to `last`, inclusive.

        If `row_key` is None, all rows of the partitions are read. If `last` is None, the range has no end.
        """

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        """Apply all operations or none. Return the new ETags, "" for a deleted row.

        Raises `PayloadTooLargeError` or `InvalidKeyError` before any I/O. Raises `RowExistsError`, `RowNotFoundError`
        or `RowChangedError` for the first refused operation, and `StoreUnavailableError` if the store does not answer.
        """

    async def barrier(self) -> None:
        """Wait until all changes that any process has committed so far would survive a power failure."""


def place_of(table: Table) -> tuple[str, str]:
    """Return a table's name and its store's URL without secrets. Either is "" if unknown."""
    return getattr(table, "name", ""), getattr(table, "store_url", "")


Bounds = tuple[str, str, str]
"""The partition key of a query or the row key of a scan, and the first and last of the other keys. All are escaped."""

LAST_KEY = "\U0010ffff" * 257
"""Sorts after all stored keys."""

PageKind = Literal["query", "scan", "scan_all"]


class RangeTable(Table):
    """A table whose queries and scans are one method, `page`, which takes escaped keys."""

    async def query(
        self,
        partition_key: str,
        first: str,
        last: str,
        *,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        bounds = escape(partition_key), escape_bound(first), escape_bound(last)
        return await self.page("query", bounds, select, continuation)

    async def scan(
        self,
        row_key: str | None,
        first: str = "",
        last: str | None = None,
        *,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        low, high = escape_bound(first), LAST_KEY if last is None else escape_bound(last)
        if row_key is None:
            return await self.page("scan_all", ("", low, high), select, continuation)
        return await self.page("scan", (escape(row_key), low, high), select, continuation)

    async def page(
        self, kind: PageKind, bounds: Bounds, select: Sequence[str] | None, continuation: str | None
    ) -> Page:
        """Read a page of a query or scan within `bounds`. If `continuation` is given, begin at this key."""
        raise NotImplementedError


Transaction = tuple[str, Sequence[Operation]]
"""The arguments of `transact`: a partition key and operations."""

TransactionResult = tuple[str, ...] | Exception
"""The result of `transact`: the new ETags, or its error."""


@runtime_checkable
class MultiPartitionTable(Table, Protocol):
    """A table in memory or in a local file, which also reads and writes several partitions in one call."""

    async def transact_each(self, transactions: Sequence[Transaction]) -> list[TransactionResult]:
        """Run transactions in order, and commit them together. Return the new ETags or the error of each transaction.

        A refused transaction changes nothing and does not affect the others. Raises `StoreUnavailableError` if the
        commit failed. In this case, no transaction has taken effect.
        """

    async def query_each(
        self, partition_keys: Sequence[str], first: str, last: str
    ) -> list[tuple[Row, ...] | None]:
        """Read the rows `first` to `last`, inclusive, of each partition, with all properties and in key order.

        The result of a partition is None if a row is corrupt or large, or if the partition has many rows. Use `query`
        for such a partition.
        """


async def attempt_each(
    table: MultiPartitionTable, transactions: Sequence[Transaction]
) -> list[TransactionResult]:
    """Run transactions as `transact_each` does. If the commit fails, its error is the result of each transaction."""
    try:
        return await table.transact_each(transactions)
    except EventStoreError as error:
        return [copy(error) for _ in transactions]


@runtime_checkable
class LeavesTraces(Protocol):
    """Tables whose store keeps deleted or overwritten bytes until it reuses their space."""

    async def scrub(self) -> None:
        """Rewrite all tables without deleted bytes. Raises `StoreUnavailableError` if another process blocks this."""


@runtime_checkable
class MayBeReplaced(Protocol):
    """Stores in a file, which may be deleted or replaced while it is open."""

    def is_replaced(self) -> bool:
        """Return whether the open file was deleted or replaced. If so, open the store again."""


class Store(Protocol):
    """The tables behind one URL."""

    url: str
    """The URL without its secrets, for messages and logs."""

    scope: Scope
    """Coroutines of stores of process or machine scope never suspend, so `drive` can run them without an event loop."""

    async def table(self, name: str, *, make: bool = True) -> Table:
        """Open a table. Create a missing table, or raise `TableNotFoundError` if `make` is False."""

    async def close(self) -> None:
        """Release connections and files."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


FIRST_SECONDS = 0.005
LONGEST_SECONDS = 2.0
LONGEST_BLOCKING_SECONDS = 0.05  # local writers are fast, and a blocking pause stops the whole thread

Sleep = Callable[[float], Awaitable[None]]


async def pause(table: Table, failures: int) -> None:
    """Wait after `failures` successive conflicts in a table. The random duration keeps writers from colliding again."""
    longest = LONGEST_SECONDS if table.scope == "network" else LONGEST_BLOCKING_SECONDS
    await sleep_beside(table)(pause_seconds(failures, FIRST_SECONDS, longest))


def pause_seconds(failures: int, first: float, longest: float) -> float:
    """Return a random pause in seconds: half to all of a backoff that doubles from `first` up to `longest`."""
    # The exponent is bounded, since a float overflows after 1,000 doublings.
    most = min(longest, first * 2.0 ** min(failures - 1, 64))
    return random.uniform(most / 2, most)  # noqa: S311 - no secret


def sleep_beside(*tables: Table) -> Sleep:
    """Return the sleep for code that uses these tables: asynchronous if one is on the network, otherwise blocking."""
    if any(table.scope == "network" for table in tables):
        from asyncio import sleep  # noqa: PLC0415 - not needed by scripts without an event loop

        return sleep
    return _blocking_sleep


async def _blocking_sleep(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - such coroutines never suspend, and may run without an event loop


Before = Callable[[str, str, int], Awaitable[None] | None]
"""Called before a call of a table, with the call's name, its partition key (or "") and its number, from 1."""

After = Callable[[str, str, int, object], Awaitable[None] | None]
"""Called after a call of a table, with the arguments of `Before` and the call's result."""

T = TypeVar("T")
P = ParamSpec("P")


def _intercepted(
    call: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    name = call.__name__
    has_key = "partition_key" in call.__annotations__

    @wraps(call)
    async def intercepted(self: InterceptedTable, /, *args: P.args, **named: P.kwargs) -> T:
        key = str(args[0] if args else named["partition_key"]) if has_key else ""
        inner: Callable[P, Awaitable[T]] = getattr(self._table, name)
        return await self._call(name, key, partial(inner, *args, **named))

    return intercepted


class InterceptedTable(Table):
    """A table that passes calls to another table, counts them, and runs a hook before and after each call.

    A hook that raises before a call prevents the call. A hook that raises after a call discards the call's result. An
    awaitable result of a hook is awaited, so a test can write to the table in the middle of a read.
    """

    scope: Scope

    def __init__(self, table: Table, before: Before | None = None, after: After | None = None) -> None:
        self.scope = table.scope
        self.name, self.store_url = place_of(table)
        self.counts: Counter[str] = Counter()
        self._table = table
        self._before = before
        self._after = after

    @property
    def calls(self) -> int:
        """The number of calls so far. On a table service, each call is one request."""
        return self.counts.total()

    get = _intercepted(Table.get)
    query = _intercepted(Table.query)
    scan = _intercepted(Table.scan)
    transact = _intercepted(Table.transact)
    barrier = _intercepted(Table.barrier)

    async def _call(self, name: str, partition_key: str, call: Callable[[], Awaitable[T]]) -> T:
        self.counts[name] += 1
        if not (self._before or self._after):
            return await call()
        number = self.calls
        if self._before and (waiting := self._before(name, partition_key, number)):
            await waiting
        result = await call()
        if self._after and (waiting := self._after(name, partition_key, number, result)):
            await waiting
        return result


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return a coroutine's result, without an event loop. Raises `RuntimeError` if it suspends (see `Store.scope`)."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("The coroutine suspended: run it in an event loop (`asyncio.run`).")


C = TypeVar("C", bound=Any)


class PerLoop(Generic[C]):
    """Connections for each event loop, made on first use and closed with the loop. A forked process makes its own."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[Any, tuple[int, C, AsyncGenerator[None, None]]] = WeakKeyDictionary()

    def get(self) -> C:
        """Return the connections of the running event loop."""
        made = self._made.get(loop := _running_loop())
        if made is None or made[0] != os.getpid():
            for ended in [other for other in self._made if other.is_closed()]:
                del self._made[ended]
            connections = self._make()
            ending = self._until_the_loop_ends(connections)
            drive(anext(ending))
            made = self._made[loop] = os.getpid(), connections, ending
        return made[1]

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        made = self._made.pop(_running_loop(), None)
        if made is not None and made[0] == os.getpid():
            await made[2].aclose()

    async def _until_the_loop_ends(self, connections: C) -> AsyncGenerator[None, None]:
        pid = os.getpid()
        try:
            yield  # an event loop closes its asynchronous generators at its end
        finally:
            if pid == os.getpid():
                await connections.close()


def _running_loop() -> Any:  # noqa: ANN401 - its type would have to be loaded
    from asyncio import get_running_loop  # noqa: PLC0415 - scripts without an event loop do without it

    return get_running_loop()
