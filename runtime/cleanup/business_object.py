"""A business object as its tables hold it, whatever algorithm keeps it: its stream, its entity, or both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from eventstore import Partition, Row, Stream, Table, pages
from eventstore.partition import HEADER
from runtime.algorithms.outbox.entities import ENTITY
from runtime.algorithms.outbox.entity import Entity, read_entity
from runtime.algorithms.outbox.tokens import Token
from runtime.documents.registrations import is_registration
from runtime.storage.damage import placed
from runtime.storage.head import HEAD_PROPERTIES, Head, read_head
from runtime.storage.run import INDEX_PROPERTIES, read_index
from runtime.storage.stream import stream_partition
from runtime.storage.tombstone import Tombstone

_KEPT = frozenset({HEADER, ENTITY})
_ALL = ("", "\uffff")


class Tables(NamedTuple):
    """The tables that may hold something of an object: of the states, of the ids of messages, of the tokens."""

    states: Table
    deduplication_store: Table
    token_store: Table

    @property
    def each(self) -> list[Table]:
        """Each table once."""
        return list({id(table): table for table in self}.values())


@dataclass(frozen=True, slots=True)
class BusinessObject:
    """An object as it was read. `newest` is when its newest message was enqueued, as far as that is known."""

    key: str
    stream: Stream | None
    head: Head | None
    entity: Entity | None
    newest: int | None

    @property
    def tokens(self) -> list[Token]:
        """The tokens of its unfinished messages, and of attempts that lost; first those that let others be created."""
        known = [entry.tokens for entry in self.entity.outbox.values() if entry.tokens] if self.entity else []
        return [tokens.incoming for tokens in known] + [token for each in known for token in each.garbage()]

    @property
    def tombstone(self) -> Tombstone | None:
        """The tombstone that it has."""
        holder = self.head or self.entity
        return holder.tombstone if holder else None


async def read_object(table: Table, handler: str, business_id: str) -> BusinessObject | None:
    """Return what the table of the states holds of an object, None when there is nothing. Two requests."""
    partition = stream_partition(table, handler, business_id)
    with placed(table, partition.key):
        return await _read(partition)


async def _read(partition: Partition) -> BusinessObject | None:
    slice_ = await Stream.try_read(
        partition, slice_size=None, select=INDEX_PROPERTIES, header=HEAD_PROPERTIES
    )
    row = await partition.table.get(partition.key, ENTITY)
    entity = None if row is None else read_entity(row)
    if slice_ is None:
        return None if entity is None else BusinessObject(partition.key, None, None, entity, None)
    head = read_head(slice_.stream.properties or {})
    runs = [read_index(event) for event in slice_.events] + (head.tail.indexes() if head.tail else [])
    newest = max([run.newest for run in runs if run.newest is not None], default=None)
    return BusinessObject(partition.key, slice_.stream, head, entity, newest)


async def rows_of(table: Table, key: str) -> AsyncIterator[Sequence[Row]]:
    """Give the rows of an object without properties, but for its tombstones, and attempts that a sweep has to forget.

    One request for each 1,000.
    """
    async for page in pages(partial(table.query, key, *_ALL, select=[])):
        yield [row for row in page.rows if row.row_key not in _KEPT and not is_registration(row.row_key)]
