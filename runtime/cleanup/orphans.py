"""Rows that point to an entity which does not know them: documents of an attempt that is no more, and used tokens.

That can be told where the entity is in the same table. The row is read before the entity and again afterwards: whoever
works on the entity writes the one and the other in an order in which no sound row is taken for an orphan.
"""

from __future__ import annotations

from eventstore import KeyRange, Operation, Row, RowError, Table
from eventstore.listing import read_range
from runtime.algorithms.documents import effects
from runtime.algorithms.documents.draft import DOCUMENT
from runtime.algorithms.outbox import tokens
from runtime.algorithms.outbox.entities import ENTITY
from runtime.algorithms.outbox.entity import Entity, read_entity
from runtime.algorithms.outbox.tokens import Token
from runtime.errors import StoredDataError
from runtime.storage.checking.fault import Fault

_UNKNOWN = "is a document that is not published, of an attempt that its entity does not know"
_USED_BEFORE = (
    "was used for a message that its entity has finished: if it is redelivered, it is handled again"
)


class Orphans:
    """Looks at the rows of a table that may be orphans, each when it is read, and at tokens at the end."""

    def __init__(self, table: Table, *, repair: bool) -> None:
        self._table = table
        self._repair = repair
        self._used: list[Row] = []

    async def look_at(self, row: Row) -> tuple[Fault, bool] | None:
        """Return what is wrong with a document that its entity does not know, and whether it was deleted.

        Costs two requests for a document that is not published, none for any other row.
        """
        if row.partition_key.startswith(effects.PARTITION):
            return await _document(self._table, row, repair=self._repair)
        if row.partition_key.startswith(tokens.PARTITION) and row.properties.get(tokens.USED) is True:
            self._used.append(row)
        return None

    async def tokens(self) -> list[Fault]:
        """Return the used tokens that no entity waits to delete. They stay: a lost outbox may need them.

        Costs one request for each 1,000 entities, and one for each token that is found; nothing where none is used.
        """
        if not self._used:
            return []
        incoming, handlers = await _awaited(self._table)
        faults = []
        for row in self._used:
            token = Token(row.partition_key.removeprefix(tokens.PARTITION), *row.row_key.rsplit("-", 1))
            if token in incoming or token.handler not in handlers:
                continue
            if await self._table.get(row.partition_key, row.row_key) is not None:
                faults.append(Fault(row.partition_key, row.row_key, _USED_BEFORE))
        return faults


async def _awaited(table: Table) -> tuple[set[Token], set[str]]:
    """Return the tokens that entities wait to delete, and the handlers whose entities all tell."""
    incoming: set[Token] = set()
    handlers: set[str] = set()
    unknown: set[str] = set()
    async for row in read_range(table, ENTITY, KeyRange()):
        handler = row.partition_key.partition("-")[0]
        try:
            entity = read_entity(row)
        except StoredDataError:
            unknown.add(handler)
            continue
        if entity.algorithm == "tokens":
            handlers.add(handler)
        incoming.update(entry.tokens.incoming for entry in entity.outbox.values() if entry.tokens)
    return incoming, handlers - unknown


async def _document(table: Table, row: Row, *, repair: bool) -> tuple[Fault, bool] | None:
    try:
        effect = effects.unpublished_effect(row)
        found = None if effect is None else await table.get(effect.owner, ENTITY)
        if effect is None or found is None or _knows(read_entity(found), effect):
            return None
    except StoredDataError:
        return None  # which is told of the row itself
    again = await table.get(row.partition_key, row.row_key)
    if again is None or again.etag != row.etag:
        return None
    fault = Fault(row.partition_key, row.row_key, _UNKNOWN, repair=True)
    return fault, repair and await _delete(table, row)


def _knows(entity: Entity, effect: effects.Effect) -> bool:
    if effect.attempt in entity.intents.attempts:
        return True
    outputs = (output for entry in entity.outbox.values() for output in entry.outputs or ())
    return any(output.headers.get(DOCUMENT) == effect.name for output in outputs)


async def _delete(table: Table, row: Row) -> bool:
    try:
        await table.transact(row.partition_key, [Operation.delete(row.row_key, row.etag)])
    except RowError:
        return False
    return True
