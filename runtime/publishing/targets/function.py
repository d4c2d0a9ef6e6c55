"""A function of a user as a target: at most once or at least once, by choice.

The function takes a `CommittedOutput`, and may be a coroutine function. At most once: an output is noted as sent before
the function is called, and never given to it again, also if it raised. At least once: it is noted afterwards, so after
a crash the outputs of one chunk may be given to it again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from eventstore.backoff import pause_seconds
from runtime.errors import PermanentError, TargetError, TransientError
from runtime.publishing.publisher import Promise, Refused, SliceName
from runtime.publishing.slices import CommittedOutput

Send = Callable[[CommittedOutput], object]

_CHUNK = 20


class FunctionTarget:
    """A function that sends an output."""

    publishers: int | None = None
    window: timedelta | None = None

    def __init__(self, name: str, send: Send, promise: Promise, attempts: int) -> None:
        self.name = name
        self.identity = f"{name} {promise}"
        self.promise = promise
        self.chunk = 1 if promise.is_noted_before else _CHUNK
        self.attempts = attempts
        self.send = send

    async def prepare(self, types: Collection[str]) -> None:
        """Nothing."""

    def publisher(self) -> FunctionPublisher:
        """Return a publisher."""
        return FunctionPublisher(self)


class FunctionPublisher:
    """Gives outputs to a function, one after another."""

    def __init__(self, target: FunctionTarget) -> None:
        self._target = target

    async def open(self, name: SliceName) -> bool:
        """Say that a slice is to be sent: a function keeps no markers."""
        del name
        return True

    async def send(self, outputs: Sequence[CommittedOutput]) -> Sequence[Refused]:
        """Give outputs to the function; return those on which it raised, at most once, or raised `PermanentError`."""
        found = [await self._send_one(each) for each in outputs]
        return [each for each in found if each is not None]

    async def commit(self) -> None:
        """Nothing: what was given to the function cannot be taken back."""

    async def roll_back(self) -> None:
        """Nothing: what was given to the function cannot be taken back."""

    async def close(self) -> None:
        """Nothing."""

    async def _send_one(self, output: CommittedOutput) -> Refused | None:
        for attempt in range(1, self._target.attempts + 1):
            try:
                await self._call(output)
                return None
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                if self._target.promise.is_noted_before or isinstance(error, PermanentError):
                    return Refused.of(output, why)
                if attempt == self._target.attempts:
                    message = (
                        f"{self._target.name} did not send {output.message_id} in {attempt} attempts: {why}"
                    )
                    raise TargetError(message) from error
                asked = error.retry_after if isinstance(error, TransientError) else None
                await asyncio.sleep(pause_seconds(attempt, 0.1, 10.0) if asked is None else asked)
        return None

    async def _call(self, output: CommittedOutput) -> None:
        if inspect.iscoroutinefunction(self._target.send):
            await self._target.send(output)
            return
        answer = await asyncio.to_thread(self._target.send, output)
        if inspect.isawaitable(answer):
            await answer
