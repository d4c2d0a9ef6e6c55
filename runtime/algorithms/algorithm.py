"""The interface of the algorithms that process each message exactly once.

An algorithm awaits nothing but tables, stores made of tables, and `publish`; each call of a table is one atomic
operation. Clocks, ids and the sleep between two attempts are passed in. So a model checker can step the shipped
coroutine through all interleavings of its calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol

from runtime.batches.open_batches import OpenBatches
from runtime.messages.deliveries import Delivery
from runtime.messages.outcome import Outcome, Output

Publish = Callable[[Output], Awaitable[None]]
"""Sends one output. It may be called again with the same output. Whatever it raises ends the attempt."""

AT_ONCE = timedelta()
"""No age: what was begun a moment ago counts too."""


class Algorithm(Protocol):
    """Processes the messages of one handler, one at a time."""

    async def process(self, message: Delivery, *, redrive_beside: OpenBatches | None = None) -> Outcome:
        """Handle a message, publish its outputs, and return the outcome with the outputs that were published.

        A message that is refused is kept as a letter with its stream; its redeliveries are refused too, and only
        when it is redriven it is handled again: then `redrive_beside` are the batches that are open. What one of them
        refused stays refused, as all attempts at it have to find it so.

        On return the effect of the message is stored durably, and the message can be acknowledged. The call may be
        cancelled, or its process killed, at any await: the next delivery of the message completes the work.

        Raises `RetriesExhaustedError` after too many attempts in a row that lost a race or got no answer.
        """

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        """Publish and finish messages whose worker died and that will not be redelivered. Return how many.

        Messages handled less than `older_than` ago are left out, as their attempt may still run. To sweep them too is
        safe: their outputs may then be published once more.
        """

    async def evict(self, older_than: timedelta, *, dry_run: bool = False) -> int:
        """Forget the ids of messages processed longer ago than `older_than`. Return how many.

        A later copy of such a message is processed again. With `dry_run` nothing is deleted. Algorithms that keep no
        ids by age return 0.
        """
