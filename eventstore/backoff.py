"""Exponential backoff with jitter, after a conflict.

Without it, writers that collided once collide again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable

from eventstore.port import Table

FIRST_SECONDS = 0.005
LONGEST_SECONDS = 2.0
LONGEST_BLOCKING_SECONDS = 0.05
"""Writers of one machine need less, and nothing else happens in their thread meanwhile."""

Sleep = Callable[[float], Awaitable[None]]


async def pause(table: Table, failures: int) -> None:
    """Wait after so many failures in a row on a table: asleep in the event loop, if its calls need one."""
    longest = LONGEST_SECONDS if table.scope == "network" else LONGEST_BLOCKING_SECONDS
    await sleep_beside(table)(pause_seconds(failures, FIRST_SECONDS, longest))


def pause_seconds(failures: int, first: float, longest: float) -> float:
    """Return how long to wait after so many failures: from the upper half of what doubles from `first` to `longest`."""
    most = min(longest, first * 2 ** (failures - 1))
    return random.uniform(most / 2, most)  # noqa: S311 - no secret


def sleep_beside(*tables: Table) -> Sleep:
    """Return how to sleep in work on these tables: other tasks go on if one of them is on the network."""
    if any(table.scope == "network" for table in tables):
        from asyncio import sleep  # noqa: PLC0415 - scripts without an event loop do without it

        return sleep
    return _blocking_sleep


async def _blocking_sleep(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - a coroutine on such tables never suspends, and may have no event loop
