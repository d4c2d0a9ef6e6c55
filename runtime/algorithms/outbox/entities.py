"""The entities of one handler in a table: load one, store it if nobody wrote since, find those that are unfinished."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from eventstore import (
    ConcurrencyConflictError,
    Include,
    InvalidKeyError,
    Operation,
    Page,
    Row,
    RowError,
    Table,
    pages,
)
from eventstore.keys import escape
from handlers.app import HandlerDefinition
from runtime.algorithms.outbox.entity import Entity, read_entity
from runtime.errors import UsageError
from runtime.messages.deliveries import Prepared
from runtime.messages.outcome import Outcome, Reason, dead_letter
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.storage import letters
from runtime.storage.damage import reading_row
from runtime.storage.properties import number

ENTITY = "ENTITY"
"""The row key of an entity, in a partition with its letters, and with what a store may keep beside it."""


@dataclass(frozen=True, slots=True)
class Entities:
    """The entities of one handler, written by the algorithm of this name."""

    table: Table
    handler: HandlerDefinition
    algorithm: str
    retries: RetryPolicy

    def key(self, business_id: str) -> str:
        """Return the partition key of an entity."""
        return f"{self.handler.name}-{business_id}"

    def business_id(self, key: str) -> str:
        """Return the business id that a partition key is made of."""
        return key.removeprefix(self.key(""))

    def refusal(self, message: Prepared) -> Outcome | None:
        """Return the dead letter of a message whose business id is too long for a key, None for all others."""
        business_id = message.business_id
        try:
            escape(self.key(business_id))
        except InvalidKeyError as error:
            return dead_letter(
                message.envelope, Reason.KEY_TOO_LONG, str(error), self.handler.name, business_id
            )
        return None

    async def load(self, key: str) -> Entity:
        """Read an entity, or return the one that was never written. Costs one request, two when it has letters.

        Raises `UsageError` when another algorithm wrote it: this one would not recognise what was processed.
        """
        row = await self.table.get(key, ENTITY)
        if row is None:
            return Entity(key, self.algorithm, self.handler.initial, self.handler.codec.version)
        entity = read_entity(row)
        if entity.algorithm != self.algorithm:
            raise UsageError(
                f"{key} is processed with the algorithm {entity.algorithm}, and cannot be with {self.algorithm}: "
                "use the same, or another table."
            )
        if entity.tombstone is not None and not entity.version:
            entity = replace(entity, state=self.handler.initial, schema=self.handler.codec.version)
        return await with_letters(self.table, entity)

    async def store(self, entity: Entity) -> Entity:
        """Write an entity as `store_entity` does."""
        return await store_entity(self.table, entity)

    async def update(self, entity: Entity, change: Callable[[Entity], Entity]) -> Entity:
        """Store the entity as `change` returns it, again from what is stored whenever somebody else wrote in between.

        Costs one request, none when `change` returns the same entity, two more for each lost race.
        """
        return await until_undisturbed(
            self.retries,
            partial(self._load_and_change, entity.key, change),
            first=partial(self._change, entity, change),
        )

    async def _change(self, entity: Entity, change: Callable[[Entity], Entity]) -> Entity:
        changed = change(entity)
        return entity if changed is entity else await self.store(changed)

    async def _load_and_change(self, key: str, change: Callable[[Entity], Entity]) -> Entity:
        return await self._change(await self.load(key), change)

    async def unfinished(self) -> AsyncIterator[str]:
        """Give the keys of the entities with pending entries. Costs one request for each 1,000 entities."""
        async for row in self._scan():
            if _pending(row):
                yield row.partition_key

    async def all_keys(self) -> AsyncIterator[str]:
        """Give the keys of all entities, at the same cost."""
        async for row in self._scan():
            yield row.partition_key

    async def _scan(self) -> AsyncIterator[Row]:
        async for page in pages(self._scan_page):
            for row in page.rows:
                if row.partition_key.startswith(self.key("")):
                    yield row

    async def _scan_page(self, *, continuation: str | None) -> Page:
        after = f"{self.handler.name}."  # "." follows "-": all keys of the handler's entities come before
        scan = partial(self.table.scan, ENTITY, self.key(""), after, select=["Pending"])
        return await until_undisturbed(self.retries, partial(scan, continuation=continuation))


def _pending(row: Row) -> int:
    with reading_row("The entity", row):
        return number(row.properties, "Pending")


async def with_letters(table: Table, entity: Entity) -> Entity:
    """Read the letters of an entity, if it has any. A write is refused when it was changed since it was read."""
    if not entity.letter_rows:
        return entity
    page = partial(table.query, entity.key, letters.PREFIX, letters.LAST, select=letters.PROPERTIES)
    rows = [row async for found in pages(page) for row in found.rows]
    return replace(entity, letters=letters.read_letters(rows))


async def store_entity(table: Table, entity: Entity) -> Entity:
    """Write an entity on the condition that nobody wrote it since it was read. Costs one request.

    Raises `ConcurrencyConflictError` when somebody did. Then, and when no answer came, the entity must be read
    again.
    """
    includes: Sequence[Include] = ()
    if entity.refused is not None:
        kept, includes = entity.letters.changed(entity.refused)
        entity = replace(entity, letters=kept, letter_rows=len(kept.rows), refused=None)
    properties = entity.properties()
    change = (
        Operation.insert(ENTITY, properties)
        if entity.etag is None
        else Operation.replace(ENTITY, properties, entity.etag)
    )
    try:
        changes = [change, *(include.operation() for include in includes)]
        (etag, *_) = await table.transact(entity.key, changes)
    except RowError as error:
        raise ConcurrencyConflictError(entity.key, str(error)) from error
    return replace(entity, etag=etag)
