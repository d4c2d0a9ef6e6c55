"""Running a coroutine that never suspends, without an event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits only stores of process or machine scope, and return its result.

    Raises `RuntimeError` when the coroutine waits for something: it needs an event loop then.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("The coroutine waits for something else: run it in an event loop (`asyncio.run`).")
