"""Counting what a table holds, by handler: objects, messages processed, what is unfinished, rows and bytes.

A `TableCount` takes rows one after another and keeps sums only. Those of ranges of a table add up to that of the whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from eventstore import KeyRange, RecordedEvent, Row, Table
from eventstore.header import is_header, versions_of
from eventstore.limits import row_bytes
from eventstore.listing import read_headers, read_range
from eventstore.partition import EVENT, HEADER
from runtime.algorithms.outbox.entities import ENTITY
from runtime.algorithms.row_keys import FIRST
from runtime.batches.record import STATE_BASED
from runtime.storage.damage import one_of_many, reading_row
from runtime.storage.head import Head, is_of_state, read_head
from runtime.storage.properties import number, text
from runtime.storage.run import read_index

_WITH_IDS = "deduplication-store"
_OF_HEADERS = (
    "Version",
    "FirstVersion",
    "Tombstone",
    "StateVersions",
    "StateSchema",
    "KeptFrom",
    "Horizon",
    "Letters",
)
_OF_ENTITIES = ("Algorithm", "Version", "Pending")
_ALL = KeyRange()
_NO_STREAM = ("", 0)


class HandlerCount(NamedTuple):
    """What one handler has in a table.

    `objects` are streams or entities, `versions` the processed messages, `kept` the versions that are still stored,
    `unfinished` the messages whose outputs may be unpublished, `letters` those that wait. An entity keeps its newest
    version only. `horizon` is the newest of all streams, and `oldest` the time when the oldest version that is
    kept was written, in microseconds since 1970 UTC; both None when there is none. `rows` and `bytes` are all that
    stand in the handler's partitions; a quick count leaves them at 0, and `oldest` at None.
    """

    handler: str
    algorithm: str
    objects: int = 0
    versions: int = 0
    kept: int = 0
    unfinished: int = 0
    letters: int = 0
    horizon: int | None = None
    oldest: int | None = None
    rows: int = 0
    bytes: int = 0

    def plus(self, other: HandlerCount) -> HandlerCount:
        """Return what both have together."""
        return HandlerCount(
            self.handler,
            self.algorithm,
            self.objects + other.objects,
            self.versions + other.versions,
            self.kept + other.kept,
            self.unfinished + other.unfinished,
            self.letters + other.letters,
            max(filter(None, (self.horizon, other.horizon)), default=None),
            min(filter(None, (self.oldest, other.oldest)), default=None),
            self.rows + other.rows,
            self.bytes + other.bytes,
        )


class TableCount:
    """The sums over the rows that were added: of each handler, and of the rows that belong to none."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], HandlerCount] = {}
        self._stream = _NO_STREAM
        self.other_rows = 0
        self.other_bytes = 0

    @property
    def handlers(self) -> list[HandlerCount]:
        """What each handler has, in the order of their names."""
        return [self._counts[key] for key in sorted(self._counts)]

    def add_object(self, row: Row) -> None:
        """Add the header of a stream or the row of an entity, not what stands beside it."""
        count = _of_entity(row) if row.row_key == ENTITY else _of_header(row)
        if count is not None:
            self.add(count)

    def add_row(self, row: Row) -> None:
        """Add a row with all of its properties. The rows of a partition come in the order of their keys."""
        count, size = self._count(row), row_bytes(row)
        if count is None:
            self.add_others(1, size)
        else:
            self.add(count._replace(rows=1, bytes=size))

    def add(self, count: HandlerCount) -> None:
        """Add what a handler has elsewhere."""
        key = (count.handler, count.algorithm)
        before = self._counts.get(key)
        self._counts[key] = count if before is None else before.plus(count)

    def add_others(self, rows: int, size: int) -> None:
        """Add rows that belong to no handler."""
        self.other_rows += rows
        self.other_bytes += size

    def _count(self, row: Row) -> HandlerCount | None:
        """Return what a row says of its handler, None when it belongs to none."""
        if row.row_key == HEADER:
            count = _of_header(row)
            self._stream = _NO_STREAM if count is None else (row.partition_key, versions_of(row)[1])
            return count
        if not _may_be_of_handler(row):
            return None
        if row.row_key == ENTITY:
            return _of_entity(row)
        if row.row_key.startswith(FIRST):
            return HandlerCount(_handler(row), _WITH_IDS)
        stream, first_event = self._stream
        if row.partition_key != stream:
            return None
        return HandlerCount(_handler(row), STATE_BASED, oldest=_oldest_of_run(row, first_event))


async def count_rows(table: Table, keys: KeyRange = _ALL) -> TableCount:
    """Count all rows of a range of partitions.

    Reads everything: one request for each 1,000 rows, or for each 4 MiB.
    """
    count = TableCount()
    async for row in read_range(table, None, keys):
        with one_of_many(table, row.partition_key):
            count.add_row(row)
    return count


async def count_objects(table: Table, keys: KeyRange = _ALL) -> TableCount:
    """Count the streams and entities of a range of partitions. Costs two requests for each 1,000 of them."""
    count = TableCount()
    async for row in read_headers(table, keys, _OF_HEADERS):
        with one_of_many(table, row.partition_key):
            count.add_object(row)
    async for row in read_range(table, ENTITY, keys, _OF_ENTITIES):
        with one_of_many(table, row.partition_key):
            count.add_object(row)
    return count


async def object_keys(table: Table) -> AsyncIterator[str]:
    """Give the partition keys of all streams and entities. Costs two requests for each 1,000 of them."""
    for row_key in (HEADER, ENTITY):
        async for row in read_range(table, row_key, _ALL, ()):
            yield row.partition_key


def _of_header(row: Row) -> HandlerCount | None:
    if not _may_be_of_handler(row) or not is_of_state(row.properties) or not is_header(row):
        return None
    with reading_row("The header of the stream", row):
        head = read_head(row.properties)
    return HandlerCount(
        _handler(row),
        STATE_BASED,
        objects=1,
        versions=head.versions,
        kept=head.versions - head.kept_from + 1,
        letters=number(row.properties, "Letters", 0),
        horizon=head.horizon,
        oldest=_oldest_in_tail(head),
    )


def _of_entity(row: Row) -> HandlerCount:
    with reading_row("The entity", row):
        versions, pending = number(row.properties, "Version"), number(row.properties, "Pending")
        algorithm = text(row.properties, "Algorithm")
    return HandlerCount(_handler(row), algorithm, 1, versions, min(versions, 1), pending)


def _oldest_in_tail(head: Head) -> int | None:
    return head.tail.segments[0].written_at if head.tail is not None else None


def _oldest_of_run(row: Row, first_event: int) -> int | None:
    """Return when the first version of a run was written, None for another row and for a run that was cut."""
    if not row.row_key.startswith(EVENT):
        return None
    with reading_row("The run", row):
        event = RecordedEvent(int(row.row_key.removeprefix(EVENT)), row.properties)
        return read_index(event).commits[0].written_at if event.version >= first_event else None


def _may_be_of_handler(row: Row) -> bool:
    """Say whether a partition key is like that of a stream or entity: the names of handlers have no full stop."""
    handler, hyphen, _ = row.partition_key.partition("-")
    return bool(hyphen) and "." not in handler


def _handler(row: Row) -> str:
    return row.partition_key.partition("-")[0]
