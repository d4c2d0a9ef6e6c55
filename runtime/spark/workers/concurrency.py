"""How many streams a worker works on at once: as many as the store answers without delay.

While calls take about as long as at the store's best, one more stream is let in now and then; when they take
longer, because the service is at its limit, throttles (the client then repeats, which takes time) or the worker
itself is busy, there are fewer; after a failure half as many. So a slow store is not flooded, and the messages that
wait stay in the log instead of in memory. After TCP Vegas and Netflix's concurrency-limits.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from enum import Enum
from math import inf, sqrt
from typing import TypeVar

from eventstore import InterceptedTable, StoreUnavailableError, Table

FEWEST = 2
_FIRST = 8
_WINDOW = 16
"""How many answers are averaged at least before the number changes."""

_TOLERANCE = 2.0
"""How much longer than at its best a call may take."""

_WINDOWS = 100
"""After how many windows it begins anew, so that a store that became slower for good is not compared with its past."""

T = TypeVar("T")


class Wait(Enum):
    """Stands between pieces of work: those after it begin later."""

    FOR_ONE = "one"
    """When one of those before it has ended."""

    FOR_ALL = "all"
    """When all of those before it have ended."""

    FOR_NEXT = "next"
    """When the next one has ended: it does not wait for a commit with others. Without meaning on the network."""


class ConcurrencyLimit:
    """The number of streams to work on at once, from `FEWEST` to `most`, by the answers of the store."""

    def __init__(self, most: int) -> None:
        self.most = max(most, 1)
        self._limit = float(min(_FIRST, self.most))
        self._best = inf
        self._windows = 0
        self._sum = 0.0
        self._count = 0

    @property
    def limit(self) -> int:
        """How many streams may be under way now."""
        return int(self._limit)

    def answered(self, seconds: float) -> None:
        """Take note that a call took so long."""
        self._sum += seconds
        self._count += 1
        if self._count < max(_WINDOW, self.limit):
            return
        average = self._sum / self._count
        self._sum, self._count = 0.0, 0
        self._best = min(average, self._best)
        self._windows += 1
        if self._windows > _WINDOWS:
            self._begin_anew()
        elif average <= _TOLERANCE * self._best:
            self._change(self._limit + sqrt(self._limit))
        else:
            # At four times as long as at best, half as many streams remain.
            self._change(self._limit * _TOLERANCE * self._best / average)

    def failed(self) -> None:
        """Take note that the service did not answer, or refused because it is busy."""
        self._sum, self._count = 0.0, 0
        self._change(self._limit / 2)

    def measured(self, table: Table) -> Table:
        """Return a table whose calls are taken note of."""
        return _MeasuredTable(table, self)

    def _begin_anew(self) -> None:
        self._limit = float(min(_FIRST, self.most))
        self._best = inf
        self._windows = 0

    def _change(self, limit: float) -> None:
        self._limit = float(min(max(limit, FEWEST), self.most))


class _MeasuredTable(InterceptedTable):
    """A table that says how long its calls take."""

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
