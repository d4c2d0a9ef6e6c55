"""Retries and pace: how often and after what pauses an attempt is repeated, and how many requests a second are made."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from eventstore import InterceptedTable, Table
from eventstore.errors import ConcurrencyConflictError, StoreUnavailableError, StreamTruncatedError
from eventstore.header import EVENT
from eventstore.port import Sleep, pause_seconds, sleep_beside
from runtime.errors import RetriesExhaustedError, StoredDataError, TargetUnavailableError

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


class RateLimitedTable(InterceptedTable):
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


_MISSING = 3

Attempt = Callable[[], Awaitable[T]]
"""One attempt at some work, which begins by reading what is stored."""

READ_AGAIN = (ConcurrencyConflictError, StreamTruncatedError, StoreUnavailableError)
"""What an attempt is repeated after: somebody else wrote since it read, or the store did not answer."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """At most `attempts` in a row without progress, pauses doubling from `first` to `longest` seconds.

    Each pause is drawn at random from its upper half, so that those who collided once do not collide again. Without a
    `sleep` of its own, the policy takes that which suits the tables that the work is on.
    """

    attempts: int = 12
    first: float = 0.005
    longest: float = 2.0
    sleep: Sleep | None = None

    def beside(self, *tables: Table) -> RetryPolicy:
        """Return the policy for work on these tables: other tasks go on in its pauses if one is on the network."""
        return self.sleeping(sleep_beside(*tables))

    def sleeping(self, sleep: Sleep) -> RetryPolicy:
        """Return the policy with this sleep, unless it has one of its own."""
        return replace(self, sleep=sleep) if self.sleep is None else self

    def start(self) -> Retries:
        """Begin to count."""
        return Retries(self)


class Retries:
    """Counts the attempts of one piece of work."""

    __slots__ = ("_failures", "_missing", "_policy")

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failures = 0
        self._missing: dict[str, int] = {}

    async def pause(self, error: Exception) -> None:
        """Wait before the next attempt. Raises `RetriesExhaustedError` when there is none left.

        Raises `StoredDataError` when the same event is missing each time: whoever cuts it away moves the header first,
        so that the next attempt does not look for it.
        """
        if isinstance(error, StreamTruncatedError):
            event = str(error)
            self._missing[event] = self._missing.get(event, 0) + 1
            if self._missing[event] >= _MISSING:
                raise StoredDataError(
                    f"The header promises an event that is gone: {error}",
                    f"{EVENT}{error.version:010d}",
                    error.stream,
                ) from error
        self._failures += 1
        if self._failures >= self._policy.attempts:
            raise RetriesExhaustedError(
                f"Gave up after {self._failures} attempts in a row: {error}"
            ) from error
        if self._policy.sleep is None:
            raise AssertionError("A policy chooses its sleep by the tables that it is `beside`.")
        await self._policy.sleep(pause_seconds(self._failures, self._policy.first, self._policy.longest))

    def progress(self) -> None:
        """Count from the start again: something was stored."""
        self._failures = 0


async def until_undisturbed(
    retries: RetryPolicy, attempt: Attempt[T], *, first: Attempt[T] | None = None
) -> T:
    """Return the result of the first attempt that raises none of the errors in `READ_AGAIN`.

    `first`, if given, is awaited in place of the first attempt. Raises `RetriesExhaustedError` after too many attempts.
    """
    tries = retries.start()
    work = first or attempt
    while True:
        try:
            return await work()
        except READ_AGAIN as error:
            await tries.pause(error)
            work = attempt


async def until_available(
    attempts: int, attempt: Attempt[T], *, roll_back: Callable[[], Awaitable[None]] | None = None
) -> T:
    """Return what an attempt at a target gives; make another after `TargetUnavailableError`, up to `attempts`.

    Pauses double from 0.1 to 10 seconds, or last as long as the target asks. `roll_back` is awaited before each.
    """
    from asyncio import sleep  # noqa: PLC0415 - scripts without an event loop do without it

    for failures in range(1, attempts):
        try:
            return await attempt()
        except TargetUnavailableError as error:
            if roll_back is not None:
                await roll_back()
            asked = error.retry_after
            await sleep(pause_seconds(failures, 0.1, 10.0) if asked is None else asked)
    return await attempt()


@contextmanager
def first_error() -> Iterator[None]:
    """Raise the first error of an `asyncio.TaskGroup`, not the group of all."""
    try:
        yield
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]
        raise first from first.__cause__
