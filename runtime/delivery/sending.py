"""One attempt to send: a sender, called with a message, until its time is up.

A sender is a function that takes an `OutgoingMessage`, with `async def` or without. It returns when the receiver has
taken the message, and raises otherwise: `TransientError`, `TimeoutError` or `ConnectionError` when another attempt may
succeed, `PermanentError` when none will. Any other error counts as permanent for the message, and as a failure of the
sender for the circuit breaker.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from runtime.delivery.outgoing import OutgoingMessage
from runtime.errors import PermanentError, TransientError

Sender = Callable[[OutgoingMessage], Awaitable[None] | None]
"""Sends one message, with `async def` or without. Returns when the receiver has taken it, and raises otherwise."""


def is_transient(error: Exception) -> bool:
    """Say whether another attempt may succeed."""
    return isinstance(error, TransientError | TimeoutError | ConnectionError)


class Attempt:
    """Sends a message once, and remembers what came of it.

    A sender without `async` works in a thread, which nothing can stop: when its time is up it may go on, and the
    message may arrive later.
    """

    def __init__(
        self, sender: Sender, message: OutgoingMessage, *, seconds: float, threads: Executor
    ) -> None:
        self.was_made = False
        self.error: Exception | None = None
        self._sender = sender
        self._message = message
        self._seconds = seconds
        self._threads = threads

    async def __call__(self) -> None:
        """Send. Raises what the sender raises, and `TimeoutError` when its time is up."""
        self.was_made = True
        try:
            async with asyncio.timeout(self._seconds):
                await self._send()
        except TimeoutError as error:
            self.error = TimeoutError(str(error) or f"no answer within {self._seconds:g} s")
            raise self.error from error
        except Exception as error:
            self.error = error
            raise

    @property
    def receiver_answered(self) -> bool:
        """Whether the receiver took the message, or refused this one alone."""
        return self.was_made and (self.error is None or isinstance(self.error, PermanentError))

    @property
    def retry_after(self) -> float | None:
        """For how many seconds the receiver asked to wait."""
        return self.error.retry_after if isinstance(self.error, TransientError) else None

    async def _send(self) -> None:
        if is_async(self._sender):
            answer = self._sender(self._message)
        else:
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._threads, self._sender, self._message)
        if inspect.isawaitable(answer):
            await answer


def is_async(sender: Sender) -> bool:
    """Say whether a sender is a coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(sender) or inspect.iscoroutinefunction(type(sender).__call__)
