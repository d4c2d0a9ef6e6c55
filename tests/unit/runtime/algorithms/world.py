"""A world for one algorithm: tables that all its workers share, all that was published, and disturbances."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import get_args

from eventstore import InterceptedTable, Table, drive
from handlers import App
from runtime import Envelope, Outcome, Output, Processor, Publish, TableSettings
from runtime.algorithms.choice import AlgorithmName
from runtime.algorithms.outbox.entity import ENTITY, Entity, read_entity
from runtime.versions.head import read_head
from samples.shooting_range import app as shooting_range
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import ToldClock

ALGORITHMS: tuple[AlgorithmName, ...] = get_args(AlgorithmName)
WITH_OUTBOX: tuple[AlgorithmName, ...] = ALGORITHMS[1:]

Step = Callable[[str], Awaitable[object] | None]
"""Told of each call before it takes place, and of each that took effect: may raise, or do something in between."""


class World:
    """The tables of an app and one algorithm, and what was published there.

    The `other` table holds the ids of the deduplication store, or the tokens.
    Each message from outside gets its token when it is first sent, as the token-based algorithm wants it.
    """

    def __init__(
        self,
        algorithm: AlgorithmName,
        app: App = shooting_range,
        *,
        states: Table | None = None,
        other: Table | None = None,
    ) -> None:
        self.algorithm: AlgorithmName = algorithm
        self.app = app
        self.states = states or memory_table()
        self.other = other or memory_table()
        self.clock = ToldClock()
        self.published: list[Output] = []
        self.calls: list[str] = []
        self.sent: list[Counter[str]] = []
        self._consumed = 0
        self._headers: dict[str, Mapping[str, str] | None] = {}

    def deliver(self, *messages: Envelope) -> list[Outcome]:
        return drive(self.process(*messages))

    def redrive(self, *messages: Envelope) -> list[Outcome]:
        return drive(self._redrive(*messages))

    async def _redrive(self, *messages: Envelope) -> list[Outcome]:
        sent = [await self.send(message) for message in messages]
        return [outcome for message in sent for outcome in await self.worker().redrive(message)]

    async def process(
        self, *messages: Envelope, before: Step | None = None, after: Step | None = None
    ) -> list[Outcome]:
        """Let a worker process messages; note its calls, and disturb it before and after each of them."""
        worker = self.worker(before, after)
        sent = [await self.send(message) for message in messages]
        self.calls.clear()
        return [outcome for message in sent for outcome in await worker.process(message)]

    def worker(self, before: Step | None = None, after: Step | None = None) -> Processor:
        other = self.watched("other", self.other, before, after)
        return Processor(
            self.app,
            self.watched("states", self.states, before, after),
            self.publisher(before, after),
            clock=self.clock,
            retries=PATIENCE,
            algorithm=self.algorithm,
            deduplication_store=other if self.algorithm == "deduplication-store" else None,
            token_store=other if self.algorithm == "tokens" else None,
            settings=TableSettings(),
        )

    def publisher(self, before: Step | None, after: Step | None) -> Publish:

        async def publish(output: Output) -> None:
            await self._step("publish", before)
            self.published.append(output)
            await self._step("published", after, note=False)

        return publish

    async def send(self, message: Envelope) -> Envelope:
        """Return a message from outside as it is sent, with the token of its first copy; outputs have theirs."""
        if (message.headers or {}).get("token"):
            return message
        if message.message_id not in self._headers:
            self.calls.clear()
            self._headers[message.message_id] = (await self.worker().issue(message)).headers
            self.sent.append(Counter(call for call in self.calls if not call.endswith("barrier")))
        return message._replace(headers=self._headers[message.message_id])

    def consume(self) -> None:
        """Let workers process all that was published, each copy, until nothing more is."""
        drive(self.consuming())

    async def consuming(self) -> None:
        while self._consumed < len(self.published):
            output = self.published[self._consumed]
            self._consumed += 1
            if self.app.routes(output.type):
                await self.worker().process(output.envelope())

    def entity(self, handler: str, business_id: str) -> Entity | None:
        row = drive(self.states.get(f"{handler}-{business_id}", ENTITY))
        return None if row is None else read_entity(row)

    def state(self, handler: str, business_id: str) -> dict[str, object]:
        if self.algorithm == "state-based":
            header = drive(self.states.get(f"{handler}-{business_id}", "SS-HEAD"))
            assert header is not None
            encoded = read_head(header.properties).state
        else:
            entity = self.entity(handler, business_id)
            encoded = entity.state if entity else None
        assert encoded is not None
        fields: dict[str, object] = json.loads(encoded)
        return fields

    def garbage(self) -> list[str]:
        """Return what no quiet system may hold: entries that are not finished, and tokens."""
        unfinished = [
            key
            for (key, row_key), properties in rows(self.states).items()
            if row_key == ENTITY and properties["Pending"]
        ]
        tokens = [f"{key} {row_key}" for key, row_key in rows(self.other) if key.startswith("tokens.")]
        return unfinished + tokens

    def watched(self, name: str, table: Table, before: Step | None, after: Step | None) -> Table:
        return InterceptedTable(
            table,
            before=lambda call, *_: self._step(f"{name} {call}", before),
            after=lambda call, *_: self._step(f"{name} {call}", after, note=False),
        )

    async def _step(self, call: str, step: Step | None, *, note: bool = True) -> None:
        if note:
            self.calls.append(call)
        waiting = step(call) if step else None
        if waiting is not None:
            await waiting
