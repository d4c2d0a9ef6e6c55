"""What targets have in common that take one output at a time: order, patience, and how much is asked of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

from runtime.errors import TargetError, TargetUnavailableError
from runtime.pace import Pace
from runtime.publishing.publisher import Promise, Record, SliceName, TargetOptions
from runtime.publishing.slices import CommittedOutput
from runtime.retries import until_available

T = TypeVar("T")


class OneByOneTarget:
    """A target without transactions: what was sent cannot be taken back, and there are no markers."""

    publishers: int | None = None
    window: timedelta | None = None

    def __init__(
        self, name: str, identity: str, promise: Promise, chunk: int, options: TargetOptions
    ) -> None:
        self.name = name
        self.identity = identity
        self.promise = promise
        self.chunk = chunk
        self.options = options
        self.pace = Pace(options.rate)
        self._places = asyncio.Semaphore(options.concurrency)

    async def prepare(self, types: Collection[str]) -> None:
        """Do nothing: a receiver is there or not."""

    async def in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        """Make a request when there is room for it, at the pace of all publishers together."""
        async with self._places:
            await asyncio.sleep(self.pace.take())
            return await work()


class OneByOnePublisher:
    """Sends the outputs of a business object one after another, and those of others meanwhile."""

    def __init__(self, target: OneByOneTarget) -> None:
        self._target = target

    async def attempt(self, output: CommittedOutput) -> Record | None:
        """Try once to send an output; return what is to be recorded of it.

        Raises `TargetUnavailableError` when another attempt may succeed.
        """
        raise NotImplementedError

    async def open(self, name: SliceName) -> bool:
        """Return True: there are no markers."""
        del name
        return True

    async def send(self, outputs: Sequence[CommittedOutput]) -> Sequence[Record]:
        """Send outputs. Raises `TargetError` after too many attempts at one of them."""
        by_object = [list(some) for _, some in groupby(outputs, attrgetter("business_id"))]
        tasks = [asyncio.ensure_future(self._in_order(some)) for some in by_object]
        try:
            found = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [each for some in found for each in some]

    async def commit(self) -> None:
        """Do nothing: what was sent cannot be taken back."""

    async def roll_back(self) -> None:
        """Do nothing: what was sent cannot be taken back."""

    async def close(self) -> None:
        """Give back connections."""

    async def _in_order(self, outputs: Sequence[CommittedOutput]) -> list[Record]:
        found, attempts = [], self._target.options.attempts
        for output in outputs:
            try:
                found.append(await until_available(attempts, partial(self.attempt, output)))
            except TargetUnavailableError as error:
                message = (
                    f"{self._target.name} did not take {output.message_id} in {attempts} attempts: {error}"
                )
                raise TargetError(message) from error
        return [each for each in found if each is not None]
