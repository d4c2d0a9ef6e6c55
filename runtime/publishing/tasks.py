"""Tasks that end together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any


async def all_or_first_error(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all at once, and raise the first error of any, once the others have been cancelled and have ended."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await _cancelled(tasks)
    for task in done:
        task.result()


async def while_renewed(
    renew: Callable[[], Awaitable[None]], every: float, work: Coroutine[Any, Any, None]
) -> None:
    """Do some work, and renew something again and again until it is done; when that fails, cancel the work."""
    working = asyncio.ensure_future(work)
    renewing = asyncio.ensure_future(_again_and_again(renew, every))
    try:
        await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
        first = working if working.done() else renewing
    finally:
        await _cancelled((working, renewing))
    first.result()


async def _again_and_again(renew: Callable[[], Awaitable[None]], every: float) -> None:
    while True:
        await asyncio.sleep(every)
        await renew()


async def _cancelled(tasks: Iterable[asyncio.Future[None]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
