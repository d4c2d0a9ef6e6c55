"""Used tokens that no entity waits to delete. Only a table that holds the entities too can tell."""

from __future__ import annotations

from collections.abc import Sequence

from eventstore import KeyRange, Row, Table
from eventstore.listing import read_range
from runtime.algorithms.outbox import tokens
from runtime.algorithms.outbox.entities import ENTITY
from runtime.algorithms.outbox.entity import read_entity
from runtime.algorithms.outbox.tokens import Token
from runtime.errors import StoredDataError
from runtime.storage.checking.fault import Fault

_USED_BEFORE = (
    "was used for a message that its entity has finished: if it is redelivered, it is handled again"
)


def is_used_token(row: Row) -> bool:
    """Return whether a row is the token of a message that led to others."""
    return row.partition_key.startswith(tokens.PARTITION) and row.properties.get(tokens.USED) is True


async def orphaned_tokens(table: Table, used: Sequence[Row]) -> list[Fault]:
    """Return the used tokens that no entity waits to delete. They stay: a lost outbox may need them.

    Costs one request for each 1,000 entities, and one for each token that is found; nothing where none is used.
    """
    if not used:
        return []
    incoming, handlers = await _awaited(table)
    faults = []
    for row in used:
        token = Token(row.partition_key.removeprefix(tokens.PARTITION), *row.row_key.rsplit("-", 1))
        if token in incoming or token.handler not in handlers:
            continue
        # Read after the entities: an entity is written before its token is deleted.
        if await table.get(row.partition_key, row.row_key) is not None:
            faults.append(Fault(row.partition_key, row.row_key, _USED_BEFORE))
    return faults


async def _awaited(table: Table) -> tuple[set[Token], set[str]]:
    """Return the tokens that entities wait to delete, and the handlers whose entities can all be read."""
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
