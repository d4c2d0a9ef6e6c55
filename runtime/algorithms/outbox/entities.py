"""The entities of one handler in a table: load one, store it if nobody wrote since, find those that are unfinished."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial

from eventstore import ConcurrencyConflictError, InvalidKeyError, Operation, Row, RowError, Table
from eventstore.keys import escape
from handlers.app import HandlerDefinition
from runtime.algorithms.outbox.entity import Entity, read_entity
from runtime.errors import UsageError
from runtime.messages.outcome import Outcome, Reason, dead_letter
from runtime.messages.parsing import Prepared
from runtime.retries import READ_AGAIN, RetryPolicy, until_undisturbed
from runtime.storage.properties import number

ENTITY = "ENTITY"
"""The row key of an entity, alone in its partition but for what a store may keep beside it."""


class Entities:
    """The entities of one handler, written by one algorithm."""

    def __init__(
        self, table: Table, handler: HandlerDefinition, algorithm: str, retries: RetryPolicy
    ) -> None:
        self.table = table
        self._handler = handler
        self._algorithm = algorithm
        self._retries = retries

    def key(self, business_id: str) -> str:
        """Return the partition key of an entity."""
        return f"{self._handler.name}-{business_id}"

    def business_id(self, key: str) -> str:
        """Return the business id that a partition key is made of."""
        return key.removeprefix(self.key(""))

    def refusal(self, message: Prepared) -> Outcome | None:
        """Return the dead letter of a message whose entity no table can hold, None for all others."""
        business_id = message.business_id
        try:
            escape(self.key(business_id))
        except InvalidKeyError as error:
            return dead_letter(
                message.envelope, Reason.KEY_TOO_LONG, str(error), self._handler.name, business_id
            )
        return None

    async def load(self, key: str) -> Entity:
        """Read an entity, or return the one that was never written. Costs one request.

        Raises `UsageError` when another algorithm wrote it: it would not find the evidence of what was processed.
        """
        row = await self.table.get(key, ENTITY)
        if row is None:
            return Entity(key, self._algorithm, self._handler.initial, self._handler.codec.version)
        entity = read_entity(row)
        if entity.algorithm != self._algorithm:
            raise UsageError(
                f"{key} is processed with the algorithm {entity.algorithm}, and cannot be with {self._algorithm}: "
                "use the same, or another table."
            )
        return entity

    async def store(self, entity: Entity) -> Entity:
        """Write an entity, on the condition that nobody did since it was read. Costs one request.

        Raises `ConcurrencyConflictError` when somebody did. Then, and when no answer came, read again.
        """
        properties = entity.properties()
        change = (
            Operation.insert(ENTITY, properties)
            if entity.etag is None
            else Operation.replace(ENTITY, properties, entity.etag)
        )
        try:
            (etag,) = await self.table.transact(entity.key, [change])
        except RowError as error:
            raise ConcurrencyConflictError(entity.key, str(error)) from error
        return replace(entity, etag=etag)

    async def update(self, entity: Entity, change: Callable[[Entity], Entity]) -> Entity:
        """Change an entity, and when somebody else wrote since, what is there then; nothing when nothing changes."""
        tries = self._retries.start()
        loaded: Entity | None = entity
        while True:
            try:
                loaded = loaded or await self.load(entity.key)
                changed = change(loaded)
                return loaded if changed is loaded else await self.store(changed)
            except READ_AGAIN as error:
                loaded = None
                await tries.pause(error)

    async def unfinished(self) -> AsyncIterator[str]:
        """Give the keys of the entities with pending entries. One request for each 1,000 entities."""
        async for row in self._scan():
            if number(row.properties, "Pending"):
                yield row.partition_key

    async def all_keys(self) -> AsyncIterator[str]:
        """Give the keys of all entities, at the same cost."""
        async for row in self._scan():
            yield row.partition_key

    async def _scan(self) -> AsyncIterator[Row]:
        prefix = self.key("")
        after = (
            f"{self._handler.name}."  # the character after the hyphen: all keys with the prefix come before
        )
        continuation = None
        while True:
            read = partial(
                self.table.scan, ENTITY, prefix, after, select=["Pending"], continuation=continuation
            )
            page = await until_undisturbed(self._retries, read)
            for row in page.rows:
                if row.partition_key.startswith(prefix):
                    yield row
            continuation = page.continuation
            if continuation is None:
                return
