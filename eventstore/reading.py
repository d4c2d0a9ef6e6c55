"""Reading the rows of a stream: what is selected, the pages of a range, the events in it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import attrgetter

from eventstore.errors import ConcurrencyConflictError, StreamDeletedError
from eventstore.events import RecordedEvent
from eventstore.header import HEADER_NAMES, is_tombstone, versions_of
from eventstore.partition import Partition
from eventstore.port import Properties, Row, pages
from eventstore.properties import VERSION, FrozenProperties, frozen_copy
from eventstore.stream_value import StreamT


@dataclass(frozen=True, slots=True)
class Selection:
    """Which properties are read: of the events, of the header, and of both by the query."""

    events: frozenset[str] | None
    header: frozenset[str] | None
    query: tuple[str, ...] | None

    @classmethod
    def of(cls, events: Sequence[str] | None, header: Sequence[str] | None) -> Selection:
        """Return the selection; None for the events selects everything, of the header too."""
        if events is None:
            return EVERYTHING
        return _selection(tuple(events), None if header is None else tuple(header))


EVERYTHING = Selection(None, None, None)


@lru_cache(maxsize=256)
def _selection(events: tuple[str, ...], header: tuple[str, ...] | None) -> Selection:
    union = dict.fromkeys((*HEADER_NAMES, *events, *(header or ())))
    return Selection(
        frozenset(events) - {VERSION}, None if header is None else frozenset(header), tuple(union)
    )


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows of one partition, and the number of requests that they took."""

    rows: Sequence[Row]
    pages: int


async def read_rows(
    partition: Partition,
    first: str,
    last: str,
    select: Sequence[str] | None,
) -> RowRange:
    """Read the rows between two keys, both included, page by page."""
    rows: list[Row] = []
    number = 0
    async for page in pages(partial(partition.table.query, partition.key, first, last, select=select)):
        rows.extend(page.rows)
        number += 1
    if number > 1:
        rows.sort(key=attrgetter("row_key"))  # Cosmos DB promises no order
    return RowRange(rows, number)


async def read_first_rows(partition: Partition, last: str, select: Sequence[str] | None) -> Sequence[Row]:
    """Read the header, and the rows up to a key that fit into one page with it."""
    page = await partition.table.query(partition.key, partition.header, last, select=select)
    if page.continuation is None or (page.rows and page.rows[0].row_key == partition.header):
        return page.rows
    # An empty page, or Cosmos DB, which promises no order: the header is in a later one.
    return (await read_rows(partition, partition.header, last, select)).rows


async def read_header(blank: StreamT) -> StreamT | None:
    """Read the header of a stream, None when there is no stream. Raises `StreamDeletedError`."""
    partition = blank.partition
    row = await partition.table.get(partition.key, partition.header)
    return None if row is None else stream_read(blank, row, EVERYTHING)


async def with_watermark(stream: StreamT) -> StreamT:
    """Return a stream value that knows its low watermark, which is needed to replace a header or to cut events.

    One request when the value was restored without it. Raises `ConcurrencyConflictError` when the header has changed.
    """
    if stream.first_version:
        return stream
    found = await read_header(stream)
    if found is None or found.etag != stream.etag:
        raise ConcurrencyConflictError(str(stream.partition), "its header has been changed since it was read")
    return replace(stream, first_version=found.first_version)


def stream_read(blank: StreamT, row: Row, selection: Selection) -> StreamT:
    """Return the stream whose header was read. Raises `StreamDeletedError` when it is a tombstone."""
    if is_tombstone(row):
        raise StreamDeletedError(str(blank.partition))
    version, first_version = versions_of(row)
    properties = None
    if selection.events is None:
        properties = _properties_of(row)
    elif selection.header is not None:
        properties = _properties_of(row, selection.header)
    return replace(
        blank,
        etag=row.etag,
        version=version,
        first_version=first_version,
        properties=properties,
        partial=selection.header is not None,
    )


async def read_ids(partition: Partition) -> list[tuple[int, str]]:
    """Read all event ids of a stream with the versions of their events. One request for each 1,000 ids."""
    first = partition.event_id("")
    # A full stop is the character after the hyphen: the end of all keys that begin with the prefix of ids.
    found = await read_rows(partition, first, first[:-1] + ".", (VERSION,))
    return [
        (version, row.row_key.removeprefix(first))
        for row in found.rows
        if row.row_key.startswith(first) and isinstance(version := row.properties.get(VERSION), int)
    ]


def events_in(
    partition: Partition, rows: Iterable[Row], first: int, last: int, selection: Selection
) -> tuple[RecordedEvent, ...]:
    """Return the events `first` to `last` that are among the rows, up to the first that is missing there."""
    events: list[RecordedEvent] = []
    expected = first
    names = selection.events
    for row in rows:
        version = partition.version_of(row.row_key)
        if version is None or version < first:
            continue
        if version != expected or version > last:
            break
        frozen = frozen_copy(row.properties, names)
        events.append(RecordedEvent(version, frozen, None, row.timestamp, row.etag))
        expected += 1
    return tuple(events)


def _properties_of(row: Row, names: Container[str] | None = None) -> Properties:
    return FrozenProperties(
        {
            name: value
            for name, value in row.properties.items()
            if name not in HEADER_NAMES and (names is None or name in names)
        }
    )
