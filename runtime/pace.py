"""The rate limiter: how many requests a second may be made of a store or a target."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from eventstore import InterceptedTable, Table
from eventstore.backoff import Sleep, sleep_beside

T = TypeVar("T")


class Pace:
    """A bucket that holds one token, and gets so many a second: in any second at most one more is taken.

    Whoever wants a token is told how long to wait for it, in the order of asking; so coroutines and blocking calls,
    which have no event loop, can share one. Without a rate nobody waits.
    """

    def __init__(self, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1 / per_second if per_second else 0.0
        self._clock = clock
        self._next = clock()

    def take(self) -> float:
        """Take the next token, and return in how many seconds it is there."""
        now = self._clock()
        at = max(self._next, now)
        self._next = at + self._interval
        return at - now


class PacedTable(InterceptedTable):
    """A table whose calls are counted, and wait for their turn if there is a pace."""

    def __init__(self, table: Table, pace: Pace | None = None, sleep: Sleep | None = None) -> None:
        super().__init__(table)
        self._pace = pace
        self._sleep = sleep or sleep_beside(table)

    async def _call(self, name: str, partition_key: str, call: Callable[[], Awaitable[T]]) -> T:
        seconds = self._pace.take() if self._pace else 0
        if seconds > 0:
            await self._sleep(seconds)
        return await super()._call(name, partition_key, call)
