"""Retries with exponential back-off, and rate limits."""

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
    """A token bucket of size one, for coroutines and blocking code. If `per_second` is None, there is no limit."""

    def __init__(self, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1 / per_second if per_second else 0.0
        self._clock = clock
        self._next = clock()

    def take(self) -> float:
        """Reserve the next token, and return the seconds to wait for it."""
        now = self._clock()
        at = max(self._next, now)
        self._next = at + self._interval
        return at - now


class RateLimitedTable(InterceptedTable):
    """A table that counts its calls. With a pace, it also limits their rate."""

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

Attempt = Callable[[], Awaitable[T]]  # one attempt at some work, which begins with a read

READ_AGAIN = (ConcurrencyConflictError, StreamTruncatedError, StoreUnavailableError)
"""Errors that are retried: a conflict with another writer, or no response of the store."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Gives up after `attempts` failed attempts in a row, including the first.

    Pauses double from `first` to `longest` seconds, with jitter.
    """

    attempts: int = 12
    first: float = 0.005
    longest: float = 2.0
    sleep: Sleep | None = None  # None for the one that `beside` chooses
    noted: Callable[[Exception], None] | None = None  # called with each error that is retried

    def beside(self, *tables: Table) -> RetryPolicy:
        """Return a policy that sleeps asynchronously if a table is on the network, and blocks otherwise.

        Returns the policy itself if it already has a sleep.
        """
        return self.sleeping(sleep_beside(*tables))

    def sleeping(self, sleep: Sleep) -> RetryPolicy:
        """Return the policy with this sleep, unless the policy has one."""
        return replace(self, sleep=sleep) if self.sleep is None else self

    def start(self) -> Retries:
        """Return a new counter of attempts."""
        return Retries(self)


class Retries:
    """Counts the attempts of one piece of work."""

    __slots__ = ("_failures", "_missing", "_policy")

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failures = 0
        self._missing: dict[str, int] = {}

    async def pause(self, error: Exception) -> None:
        """Wait before the next attempt.

        Raises `RetriesExhaustedError` after too many attempts, and `StoredDataError` if a stored event was lost.
        """
        if self._policy.noted is not None:
            self._policy.noted(error)
        if isinstance(error, StreamTruncatedError):
            # Truncation updates the header before it deletes events, so the next attempt does not read them. An event
            # that is missing repeatedly was lost.
            event = str(error)
            self._missing[event] = self._missing.get(event, 0) + 1
            if self._missing[event] >= _MISSING:
                raise StoredDataError(
                    f"The header refers to an event that does not exist: {error}",
                    f"{EVENT}{error.version:010d}",
                    error.stream,
                ) from error
        self._failures += 1
        if self._failures >= self._policy.attempts:
            raise RetriesExhaustedError(
                f"Gave up after {self._failures} attempts in a row: {error}"
            ) from error
        if self._policy.sleep is None:
            raise AssertionError("The policy has no sleep: call `beside` first.")
        await self._policy.sleep(pause_seconds(self._failures, self._policy.first, self._policy.longest))

    def progress(self) -> None:
        """Reset the counter. Call this after a successful write."""
        self._failures = 0


async def until_undisturbed(
    retries: RetryPolicy, attempt: Attempt[T], *, first: Attempt[T] | None = None
) -> T:
    """Return the result of an attempt, with retries after errors in `READ_AGAIN`. `first` replaces the first attempt.

    Raises the errors of `Retries.pause`.
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
    """Return the result of an attempt, with retries after `TargetUnavailableError`, up to `attempts` in total.

    Pauses double from 0.1 to 10 seconds, unless the target asks for another pause. Calls `roll_back` before a pause.
    """
    from asyncio import sleep  # noqa: PLC0415 - slow to import, and unused by blocking commands

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
    """Context manager that raises the first error of an `asyncio.TaskGroup` instead of the exception group."""
    try:
        yield
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]
        raise first from first.__cause__
