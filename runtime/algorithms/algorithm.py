"""The interface of the algorithms that make the effect of each message happen exactly once.

All of them await nothing but tables, their stores (which are made of tables) and `publish`. Each call of a table is
one atomic operation. Clocks, fresh ids and pauses are given to them, so that a model checker can step the real
coroutine through all interleavings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol

from runtime.messages.outcome import Outcome, Output
from runtime.messages.parsing import Prepared

Publish = Callable[[Output], Awaitable[None]]
"""Sends one output. It may be called again with the same output, and whatever it raises ends the attempt."""

AT_ONCE = timedelta()
"""No age: also what was begun a moment ago."""


class Algorithm(Protocol):
    """Processes the messages of one handler, one at a time."""

    async def process(self, message: Prepared) -> Outcome:
        """Handle a message, publish its outputs, and return what became of it and what was published.

        When it returns, what the message did is stored durably and the message can be acknowledged. It may be
        cancelled, or its process killed, between any two calls: the next copy of the message goes on from there.
        Raises `RetriesExhaustedError` when races were lost, or the store did not answer, too often in a row.
        """

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        """Finish the messages whose attempts died and that do not come again. Return how many there were.

        What was begun less than `older_than` ago is left alone: its attempt may still run. To finish it too does no
        harm but that its outputs are published once more.
        """
