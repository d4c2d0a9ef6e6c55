"""`article`: the algorithm of the article on state-based consistent messaging, one message at a time.

For each message: read all events of the stream, looking for the message's id; invoke the handler on the newest
version, or on the one before the message's own; append one event for a new version; publish. Two requests
for each message, of which the first reads the whole stream. Durable as far as the table service is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from benchmarks.azurite import Azurite
from benchmarks.contender import Contender
from benchmarks.logs import Log
from benchmarks.shooting import (
    HANDLER,
    TABLE,
    Delivery,
    States,
    business_id,
    decode,
    decode_state,
    encode_state,
    handle,
    initial_state,
)
from eventstore import EventData, Partition, Stream, Table, connect, list_streams
from handlers import Message, Published, State


class Article(Contender):
    """Handle messages by the article's listing, on this project's event store."""

    durability = "one row for each version in the table service"
    azurite: Azurite
    deliveries: Sequence[Delivery]

    def prepare(self, log: Log, folder: Path) -> None:
        """Start an Azurite."""
        self.azurite = Azurite(folder)
        self.deliveries = log.in_order()

    def work(self) -> None:
        """Handle all messages, one after another."""
        asyncio.run(self._work())

    def states(self) -> States:
        """Read the last event of each stream."""
        return asyncio.run(self._states())

    def finish(self) -> None:
        """Stop the Azurite."""
        self.azurite.stop()

    async def _work(self) -> None:
        async with connect(self.azurite.url) as store:
            table = await store.table(TABLE)
            for delivery in self.deliveries:
                await process(table, delivery)

    async def _states(self) -> States:
        states: States = {}
        async with connect(self.azurite.url) as store:
            table = await store.table(TABLE)
            async for stream in list_streams(table):
                last = await Stream.read_last(stream.partition)
                game = stream.partition.key.removeprefix(f"{HANDLER.name}-")
                states[game] = str(last.events[-1].properties["State"])
        return states


async def process(table: Table, delivery: Delivery) -> list[Published]:
    """Load, invoke, store, publish."""
    message = decode(delivery.type, delivery.body)
    game = business_id(delivery.type, message)
    partition = Partition.exact(table, f"{HANDLER.name}-{game}")
    stream, state, is_duplicate = await load_state(partition, delivery.message_id)
    state, outputs = invoke_handler(state, delivery, message, game)
    if not is_duplicate:
        await store_state(stream, state, delivery.message_id)
    return outputs


async def load_state(partition: Partition, message_id: str) -> tuple[Stream, State, bool]:
    """Read the stream up to the message's own version. Return the state before it, or the newest one."""
    found = await Stream.try_read(partition)
    if found is None:
        return Stream(partition), initial_state(), False
    text: str | None = None
    for event in found.events:
        if event.properties["MessageId"] == message_id:
            return found.stream, decode_state(text) if text else initial_state(), True
        text = str(event.properties["State"])
    return found.stream, decode_state(text) if text else initial_state(), False


def invoke_handler(
    state: State, delivery: Delivery, message: Message, game: str
) -> tuple[State, list[Published]]:
    """Call the handler."""
    return handle(state, delivery.type, message, delivery.message_id, game)


async def store_state(stream: Stream, state: State, message_id: str) -> None:
    """Append the next version, if nobody else has meanwhile."""
    await Stream.write(stream, EventData({"MessageId": message_id, "State": encode_state(state)}))
