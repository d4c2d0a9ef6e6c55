"""A store in memory that says of itself that it is on the network: its calls may suspend."""

from __future__ import annotations

from eventstore.backends.memory import MemoryStore, MemoryTable


class NetworkStore(MemoryStore):
    """Tables in memory, as seen from the network."""

    scope = "network"

    async def table(self, name: str, *, make: bool = True) -> MemoryTable:
        table = await super().table(name, make=make)
        table.scope = self.scope
        return table
