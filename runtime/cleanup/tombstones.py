"""Tombstones as they are put: each write is on the condition that nobody has written since the object was read.

While a tombstone refuses messages, the object has no new history. So what was read before a tombstone was touched is of
the history that is forgotten, and may be deleted as it was read, whoever forgets the object meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eventstore import Operation, Table
from eventstore.partition import HEADER
from runtime.algorithms.outbox.entities import ENTITY
from runtime.algorithms.outbox.entity import Entity
from runtime.cleanup.business_object import BusinessObject
from runtime.storage.head import Head
from runtime.storage.tombstone import Tombstone


async def refuse(table: Table, found: BusinessObject, now: int) -> BusinessObject:
    """Put tombstones that refuse, and keep in them what is needed to finish; return the object as it is then.

    Costs one request for its stream, and one for its entity.
    """
    stream, entity = found.stream, found.entity
    if stream is not None and found.head is not None:
        # A clock that is ahead may have stamped messages later than now.
        horizon = max(filter(None, (now, found.newest, found.head.horizon)))
        head = _bare(found.head, Tombstone(now), horizon)
        header = {"Version": stream.version, "FirstVersion": stream.version + 1, **head.properties()}
        (etag,) = await table.transact(found.key, [Operation.replace(HEADER, header, stream.etag or "")])
        found = replace(found, stream=replace(stream, etag=etag), head=head)
    if entity is not None:
        entity = replace(entity, tombstone=Tombstone(now))
        change = Operation.replace(ENTITY, entity.properties(), entity.etag or "")
        (etag,) = await table.transact(found.key, [change])
        found = replace(found, entity=replace(entity, etag=etag))
    return found


async def touch(table: Table, found: BusinessObject, changes: Sequence[Operation] = ()) -> BusinessObject:
    """Write a tombstone as it was read, with other changes, and return the object as it is then. One request."""
    holder = found.stream or found.entity
    row_key = ENTITY if found.stream is None else HEADER
    mark = Operation.merge(row_key, {"Refuses": True}, (holder.etag if holder else None) or "")
    etag, *_ = await table.transact(found.key, [mark, *changes])
    if found.stream is not None:
        return replace(found, stream=replace(found.stream, etag=etag))
    return found if found.entity is None else replace(found, entity=replace(found.entity, etag=etag))


async def strip(table: Table, found: BusinessObject, tombstone: Tombstone) -> None:
    """Replace tombstones by ones that tell nothing of what there was. One request."""
    changes = []
    if found.stream is not None and found.head is not None:
        head = _bare(found.head, tombstone, found.head.horizon or tombstone.at)
        changes.append(
            Operation.replace(HEADER, {"Version": 0, **head.properties()}, found.stream.etag or "")
        )
    if found.entity is not None:
        before = found.entity
        entity = Entity(found.key, before.algorithm, b"", before.schema, tombstone=tombstone)
        changes.append(Operation.replace(ENTITY, entity.properties(), before.etag or ""))
    await table.transact(found.key, changes)


def _bare(head: Head, tombstone: Tombstone, horizon: int) -> Head:
    return Head(
        None, head.schema, last_now=tombstone.at, horizon=horizon, undated_cut=True, tombstone=tombstone
    )
