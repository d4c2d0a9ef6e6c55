"""`client-store`: calls of this project's event store, one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.peers.client import Client, Event
from benchmarks.shooting import TABLE
from eventstore import EventData, Partition, Stream, connect


class ClientStore(Client):
    """`Stream.write`, `read_events` and `open`."""

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Open the table."""
        async with connect(self.azurite.url) as store:
            self._table = await store.table(TABLE)
            self._streams: dict[str, Stream] = {}
            yield

    async def append(self, key: str, events: Iterable[Event]) -> None:
        """One transaction."""
        stream = self._streams.get(key) or Stream(self._partition(key))
        written = await Stream.write(stream, *[EventData(event) for event in events])
        self._streams[key] = written.stream

    async def read(self, key: str, first: int, last: int) -> list[Any]:
        """One query."""
        return list(await Stream.read_events(self._streams[key], first, last))

    async def open(self, key: str) -> None:
        """One point read."""
        await Stream.open(self._partition(key))

    async def state(self, key: str) -> str:
        """Read the last event."""
        last = await Stream.read_last(self._partition(key))
        return str(last.events[0].properties["State"])

    def _partition(self, key: str) -> Partition:
        return Partition.exact(self._table, key)
