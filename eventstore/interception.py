"""Watching, and disturbing, the calls of a table.

A hook runs before or after each call and may raise: before, the call does not take place; after, it took
effect and its answer is lost. A hook that returns an awaitable is awaited, so it can write to the table in
the middle of someone else's read. Without hooks the calls are only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from eventstore.port import Operation, Page, Row, Scope, Table, place_of

Before = Callable[[str, str, int], Awaitable[None] | None]
"""Called with the call's name, its partition key ("" when it has none) and its number, from 1."""

After = Callable[[str, str, int, object], Awaitable[None] | None]
"""Called with the same, and the result."""

T = TypeVar("T")


class InterceptedTable(Table):
    """A table that counts its calls and runs a hook before and after each of them."""

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
        """The number of calls so far; each is one request to a table service."""
        return self.counts.total()

    async def get(self, partition_key: str, row_key: str) -> Row | None:
        return await self._call("get", partition_key, lambda: self._table.get(partition_key, row_key))

    async def query(
        self,
        partition_key: str,
        first: str,
        last: str,
        *,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        return await self._call(
            "query",
            partition_key,
            lambda: self._table.query(partition_key, first, last, select=select, continuation=continuation),
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
        return await self._call(
            "scan",
            "",
            lambda: self._table.scan(row_key, first, last, select=select, continuation=continuation),
        )

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        return await self._call(
            "transact", partition_key, lambda: self._table.transact(partition_key, operations)
        )

    async def barrier(self) -> None:
        await self._call("barrier", "", self._table.barrier)

    async def _call(self, name: str, partition_key: str, call: Callable[[], Awaitable[T]]) -> T:
        self.counts[name] += 1
        if not (self._before or self._after):
            return await call()
        number = self.calls
        if self._before:
            waiting = self._before(name, partition_key, number)
            if waiting is not None:
                await waiting
        result = await call()
        if self._after:
            waiting = self._after(name, partition_key, number, result)
            if waiting is not None:
                await waiting
        return result
