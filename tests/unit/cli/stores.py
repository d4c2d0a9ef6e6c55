"""A small store of games on which commands run."""

import asyncio

from eventstore import connect
from runtime import Envelope, Processor
from runtime.ledger.ledger import Ledger
from samples.shooting_range import app
from tests.support.clocks import FrozenClock
from tests.support.consumer import Consumer
from tests.support.logs import OTHER_GAME, fire, start

TABLE = "games"
ON_STORE = ["--store", "sqlite:///store.db", "--table", TABLE]
NOW = FrozenClock.at("2026-03-01T12:00:00")


def on_store(url, work, name=TABLE):
    """Call an async function with the table of a store, and return its result."""

    async def opened():
        async with connect(url) as store:
            return await work(await store.table(name))

    return asyncio.run(opened())


async def play(table):
    """Play one game for three messages and another one for one, and count the hits and misses."""
    rows = [start(1, 40), fire(2, 40), fire(3, 41), start(4, 7, OTHER_GAME)]
    envelopes = [
        Envelope.of(row["message_id"], row["type"], row["body"], sequence=row["sequence"]) for row in rows
    ]
    await Consumer(table, clock=NOW).handle(*envelopes)


async def work(folder, algorithm, batch_algorithm=None, *, elsewhere=False, fails=False):
    """Play a game of two messages with an algorithm, whose other table may be elsewhere."""
    async with (
        connect(f"sqlite:///{folder}/store.db") as store,
        connect(f"sqlite:///{folder}/other.db") as other,
    ):
        table = await store.table(TABLE)
        seen = await other.table("seen") if elsewhere else None
        if batch_algorithm:
            await Ledger(table, NOW).begin("night", "a log", "out", batch_algorithm)

        async def publish(_):
            if fails:
                raise ConnectionError("nobody listens")

        processor = Processor(
            app, table, publish, clock=NOW, algorithm=algorithm,
            deduplication_store=seen if algorithm == "deduplication-store" else None,
            token_store=seen if algorithm == "tokens" else None,
        )  # fmt: skip
        for row in (start(1, 40), fire(2, 40)):
            message = Envelope.of(row["message_id"], row["type"], row["body"])
            await processor.process(await processor.issue(message))
