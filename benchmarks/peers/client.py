"""What a client of streams costs its own process: appends, reads and opens, one kind after the other.

Each stream of the log gets the same events, the last of which holds the state that it is to end in; nothing is
handled. Processor time is that of the client alone, for the service has a process of its own.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from benchmarks.azurite import Azurite
from benchmarks.contender import Contender
from benchmarks.logs import Log
from benchmarks.shooting import HANDLER, States

Call = Callable[[], Awaitable[Any]]
Event = Mapping[str, str | int]

APPENDS_OF_1, APPENDS_OF_50, READS, OPENS, AT_ONCE = 10, 2, 10, 10, 8
PREFIX = f"{HANDLER.name}-"


class Client(Contender):
    """Appends, reads and opens streams, and counts what that took."""

    durability = "one row for each event in the table service; nothing is handled"
    azurite: Azurite

    @abstractmethod
    def connected(self) -> AbstractAsyncContextManager[None]:
        """Be connected to the service, and have the table."""

    @abstractmethod
    async def append(self, key: str, events: Iterable[Event]) -> None:
        """Append to the stream of this client under the header's ETag; its first append makes the stream."""

    @abstractmethod
    async def read(self, key: str, first: int, last: int) -> list[Any]:
        """Read some events of a stream."""

    @abstractmethod
    async def open(self, key: str) -> None:
        """Read the header of a stream."""

    @abstractmethod
    async def state(self, key: str) -> str:
        """Return the state in the last event of a stream."""

    def prepare(self, log: Log, folder: Path) -> None:
        """Start an Azurite."""
        self.azurite = Azurite(folder)
        self._expected = {PREFIX + game: state for game, state in log.expected().items()}
        self._facts: dict[str, float] = {}

    def work(self) -> None:
        """Do each kind of call for all streams."""
        asyncio.run(self._work())

    def states(self) -> States:
        """Read the last event of each stream."""
        return asyncio.run(self._states())

    def facts(self) -> Mapping[str, float]:
        """Return milliseconds for each kind of call: of processor time, and for calls at once as the clock has them."""
        return self._facts

    def finish(self) -> None:
        """Stop the Azurite."""
        self.azurite.stop()

    async def _work(self) -> None:
        keys = list(self._expected)
        async with self.connected():
            await self._count(
                "append_of_1", [self._append(key, 1) for key in keys for _ in range(APPENDS_OF_1)]
            )
            await self._count(
                "append_of_50", [self._append(key, 50) for key in keys for _ in range(APPENDS_OF_50)]
            )
            await self._count("read_of_100", [self._read(key) for key in keys for _ in range(READS)])
            await self._count("open", [self._open(key) for key in keys for _ in range(OPENS)])
            began = time.perf_counter()
            for key in keys:
                await asyncio.gather(*[self.open(key) for _ in range(AT_ONCE)])
            self._facts["ms_of_open_at_once"] = 1000 * (time.perf_counter() - began) / (len(keys) * AT_ONCE)

    async def _count(self, kind: str, calls: list[Call]) -> None:
        began = time.process_time()
        for call in calls:
            await call()
        self._facts[f"cpu_ms_of_{kind}"] = 1000 * (time.process_time() - began) / len(calls)

    def _append(self, key: str, number: int) -> Call:
        event: Event = {"Type": "HitRecorded", "State": self._expected[key], "Number": number}
        return lambda: self.append(key, [event] * number)

    def _read(self, key: str) -> Call:
        return lambda: self.read(key, 1, 100)

    def _open(self, key: str) -> Call:
        return lambda: self.open(key)

    async def _states(self) -> States:
        async with self.connected():
            return {key.removeprefix(PREFIX): await self.state(key) for key in self._expected}
