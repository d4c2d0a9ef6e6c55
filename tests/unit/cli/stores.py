"""A small store of games for commands to look at."""

from __future__ import annotations

import asyncio

from eventstore import connect
from runtime import Envelope
from tests.support.clocks import FrozenClock
from tests.support.consumer import Consumer
from tests.support.logs import OTHER_GAME, fire, start

TABLE = "games"
NOW = FrozenClock.at("2026-03-01T12:00:00")


def on_store(url, work):
    """Do something with the table of a store."""

    async def opened():
        async with connect(url) as store:
            return await work(await store.table(TABLE))

    return asyncio.run(opened())


async def play(table):
    """Play one game for three messages and another one for one, and count the hits and misses."""
    rows = [start(1, 40), fire(2, 40), fire(3, 41), start(4, 7, OTHER_GAME)]
    envelopes = [
        Envelope.of(row["message_id"], row["type"], row["body"], sequence=row["sequence"]) for row in rows
    ]
    await Consumer(table, clock=NOW).handle(*envelopes)
