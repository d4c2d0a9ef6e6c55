"""`store-only`: the requests of a batch, sent through this project's event store alone.

It stands between `consistent-azurite` and the bare clients: what it takes longer than they do is the price of
the store's client, what the batch takes longer than it is the price of Spark, handlers and outcomes.
"""

from __future__ import annotations

import asyncio

from benchmarks.peers.bare import BareClient, send_all
from benchmarks.peers.recording import Query, Request
from benchmarks.shooting import TABLE
from eventstore import connect


class StoreOnly(BareClient):
    """The table's `query` and `transact`."""

    @staticmethod
    def replay(url: str, in_flight: int) -> None:
        """Send what this process was given."""
        asyncio.run(replay(url, in_flight))


async def replay(url: str, in_flight: int) -> None:
    """Make the calls of the table port that this process was given."""
    async with connect(url) as store:
        table = await store.table(TABLE)

        async def send(request: Request) -> None:
            if isinstance(request, Query):
                await table.query(request.partition_key, request.first, request.last, select=request.select)
            else:
                await table.transact(request.partition_key, request.operations)

        await send_all(send, in_flight)
