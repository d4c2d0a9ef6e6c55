"""Count the rows, streams and versions of a table by handler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, NamedTuple

from eventstore import KeyRange, RecordedEvent, Row, Table
from eventstore.header import EVENT, HEADER, HEADER_NAMES, is_header, versions_of
from eventstore.limits import row_bytes
from eventstore.stream import read_headers, read_range
from runtime.algorithms.outbox.entity import ENTITY
from runtime.ledger.ledger import STATE_BASED
from runtime.messages.envelope import FIRST
from runtime.versions.head import is_of_state, read_head
from runtime.versions.properties import damaged_row, number, one_of_many, reading_row, text
from runtime.versions.run import read_index

ALL = KeyRange()


class HandlerCount(NamedTuple):
    """The counts of one handler. Times are in microseconds since 1970 UTC."""

    handler: str
    algorithm: str
    objects: int = 0  # streams or entities
    versions: int = 0  # processed messages
    kept: int = 0  # versions that are still stored: only the newest of an entity
    unfinished: int = 0  # messages with possibly unpublished outputs
    letters: int = 0
    horizon: int | None = None  # the newest one of all streams
    oldest: int | None = None  # when the oldest kept version was written; None from `count_objects`
    rows: int = 0  # in all partitions of the handler; 0 from `count_objects`
    bytes: int = 0  # of these rows

    def plus(self, other: HandlerCount) -> HandlerCount:
        """Return the sum of two counts, with the newest horizon and the oldest time of the two."""
        summed = ("objects", "versions", "kept", "unfinished", "letters", "rows", "bytes")
        sums = {name: getattr(self, name) + getattr(other, name) for name in summed}
        horizons = filter(None, (self.horizon, other.horizon))
        oldest = filter(None, (self.oldest, other.oldest))
        return self._replace(horizon=max(horizons, default=None), oldest=min(oldest, default=None), **sums)


_OTHERS = HandlerCount("", "")  # rows that belong to no handler


class TableCount:
    """Sums the counts of a table, or of a part of it, by handler. Rows that belong to no handler have their own sum."""

    def __init__(self) -> None:
        self._counts = {("", ""): _OTHERS}

    @property
    def handlers(self) -> list[HandlerCount]:
        """The sums by handler and algorithm, sorted by handler."""
        return [self._counts[key] for key in sorted(self._counts) if key[0]]

    @property
    def others(self) -> HandlerCount:
        """The sum of rows that belong to no handler."""
        return self._counts["", ""]

    def add(self, count: HandlerCount) -> None:
        """Add a count to the sum of its handler and algorithm."""
        key = (count.handler, count.algorithm)
        self._counts[key] = self._counts[key].plus(count) if key in self._counts else count

    def document(self) -> list[HandlerCount]:
        """Return the sums as a JSON-serialisable list, which `merge` takes in another process."""
        return list(self._counts.values())

    def merge(self, document: Iterable[Sequence[Any]]) -> None:
        """Add the sums of another part of the table, as returned by `document` of that part's `TableCount`."""
        for each in document:
            self.add(HandlerCount(*each))


async def count_rows(table: Table, keys: KeyRange = ALL) -> TableCount:
    """Count all rows of a range of partitions. Costs one request for every 1,000 rows or 4 MiB."""
    counts = TableCount()
    stream, first_event = "", 0
    async for row in read_range(table, None, keys, substitute=damaged_row(table)):
        with one_of_many(table, row.partition_key):
            if row.row_key == HEADER:
                count = _of_header(row)
                stream, first_event = (row.partition_key, versions_of(row)[1]) if count else ("", 0)
            else:
                count = _of_row(row, first_event if row.partition_key == stream else None)
            counts.add((count or _OTHERS)._replace(rows=1, bytes=row_bytes(row)))
    return counts


async def count_objects(table: Table, keys: KeyRange = ALL) -> TableCount:
    """Count the streams and entities of a range of partitions. Costs two requests for every 1,000 objects."""
    counts = TableCount()
    of_header = [*HEADER_NAMES, "StateVersions", "StateSchema", "KeptFrom", "Horizon", "Letters"]
    of_entity = ["Algorithm", "Version", "Pending"]
    for rows, count_of in (
        (read_headers(table, keys, of_header, damaged_row(table)), _of_header),
        (read_range(table, ENTITY, keys, of_entity, damaged_row(table)), _of_entity),
    ):
        async for row in rows:
            with one_of_many(table, row.partition_key):
                counts.add(count_of(row) or _OTHERS)
    return counts


async def object_keys(table: Table, prefix: str = "") -> AsyncIterator[str]:
    """Yield the keys of all streams, then of all entities, that begin with `prefix`. Costs two requests per 1,000."""
    for row_key in (HEADER, ENTITY):
        async for row in read_range(table, row_key, KeyRange(prefix), ()):
            yield row.partition_key


def _of_row(row: Row, first_event: int | None) -> HandlerCount | None:
    """Count a row, or return None if it has no handler.

    `first_event`: the oldest event of the row's stream that is not truncated, or None if the row has no stream.
    """
    if not _may_be_of_handler(row):
        return None
    if row.row_key == ENTITY:
        return _of_entity(row)
    if row.row_key.startswith(FIRST):
        return HandlerCount(_handler(row), "deduplication-store")
    if first_event is None:
        return None
    oldest = None
    if row.row_key.startswith(EVENT):
        with reading_row("The run", row):
            event = RecordedEvent(int(row.row_key.removeprefix(EVENT)), row.properties)
            if event.version >= first_event:  # or else the run was truncated
                oldest = read_index(event).commits[0].written_at
    return HandlerCount(_handler(row), STATE_BASED, oldest=oldest)


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
        oldest=head.tail.segments[0].written_at if head.tail is not None else None,
    )


def _of_entity(row: Row) -> HandlerCount:
    with reading_row("The entity", row):
        versions, pending = number(row.properties, "Version"), number(row.properties, "Pending")
        algorithm = text(row.properties, "Algorithm")
    return HandlerCount(_handler(row), algorithm, 1, versions, min(versions, 1), pending)


def _may_be_of_handler(row: Row) -> bool:
    """Return whether a partition key could be that of a stream or entity. Names of handlers have no full stop."""
    handler, hyphen, _ = row.partition_key.partition("-")
    return bool(hyphen) and "." not in handler


def _handler(row: Row) -> str:
    return row.partition_key.partition("-")[0]
