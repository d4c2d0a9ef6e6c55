"""What there is of a business object, before it is forgotten."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from eventstore.partition import EVENT
from runtime.cleanup.business_object import Tables, read_object, rows_of
from runtime.cleanup.policies import is_held
from runtime.publishing.erasing import letters_of

_LETTER = "SS-LTR-"
_KINDS = {EVENT: "runs", "SS-IDX-": "index", _LETTER: "letters", "ID-": "ids"}


@dataclass(frozen=True, slots=True)
class Trace:
    """What tables hold of an object: versions and messages, rows by kind, and when it was forgotten before.

    `messages` are those that its entity, of an algorithm with an outbox, remembers or has unfinished.
    """

    key: str
    algorithm: str | None
    versions: int
    messages: int
    rows: dict[str, int]
    forgotten_at: int | None = None
    held: bool = False


async def look(tables: Tables, handler: str, business_id: str) -> Trace | None:
    """Return what there is of an object, None when there is nothing.

    Reads its keys, its header, and the records of publications.
    """
    found = await read_object(tables.states, handler, business_id)
    if found is None:
        return None
    rows: Counter[str] = Counter()
    for table in Tables(tables.states, tables.deduplication_store, tables.states).each:
        async for some in rows_of(table, found.key):
            rows.update(_kind(row.row_key) for row in some)
    rows["tokens"] = len(found.tokens)
    rows["records of publications"] = len(await letters_of(tables.states, handler, business_id))
    head, entity, tombstone = found.head, found.entity, found.tombstone
    return Trace(
        found.key,
        entity.algorithm if entity else None,
        head.versions + 1 - head.kept_from if head else 0,
        len(entity.outbox) if entity else 0,
        {kind: count for kind, count in rows.items() if count},
        tombstone.at if tombstone else None,
        await is_held(tables.states, found.key),
    )


def _kind(row_key: str) -> str:
    return next((kind for prefix, kind in _KINDS.items() if row_key.startswith(prefix)), "others")
