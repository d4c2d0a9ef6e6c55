"""Running attempts until none is disturbed: after a lost race or a lost answer, what is stored is read again."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable
from functools import partial
from typing import TypeVar

from eventstore import ConcurrencyConflictError, StoreUnavailableError
from runtime.backoff import BackoffPolicy

READ_AGAIN = (ConcurrencyConflictError, StoreUnavailableError)
"""What only says that the attempt has to start again: somebody else wrote, or it is not known who did."""

T = TypeVar("T")


async def until_undisturbed(backoff: BackoffPolicy, attempt: Callable[[], Awaitable[T]]) -> T:
    """Return the result of the first attempt that lost neither a race nor an answer.

    Raises `RetriesExhaustedError` after too many attempts.
    """
    tries = backoff.start()
    while True:
        try:
            return await attempt()
        except READ_AGAIN as error:
            await tries.pause(error)


async def count_of_each(
    keys: AsyncIterable[str], backoff: BackoffPolicy, work: Callable[[str], Awaitable[int]]
) -> int:
    """Do the same for each key, undisturbed, and return the sum of what it gave."""
    return sum([await until_undisturbed(backoff, partial(work, key)) async for key in keys])
