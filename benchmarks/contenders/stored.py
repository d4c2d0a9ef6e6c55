"""The final states as this project's store holds them, read through the event store's own interface."""

from __future__ import annotations

import asyncio

from benchmarks.shooting import HANDLER, TABLE, States
from eventstore import connect, list_streams


def stored_states(url: str) -> States:
    """Return the newest state of each stream of the shooting range."""
    return asyncio.run(_read(url))


async def _read(url: str) -> States:
    prefix = f"{HANDLER.name}-"
    states: States = {}
    async with connect(url) as store:
        table = await store.table(TABLE)
        async for stream in list_streams(table, prefix, header=["State"]):
            state = (stream.properties or {}).get("State")
            if isinstance(state, bytes):
                states[stream.partition.key.removeprefix(prefix)] = state.decode()
    return states
