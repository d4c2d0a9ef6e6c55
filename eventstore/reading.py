"""Reads a stream: its header, and pages of events.

The header says which events exist. Events never change, so concurrent appends do not disturb a read. If an event that
the header promises is missing, the stream was truncated, and the read starts again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial, wraps
from itertools import chain
from operator import attrgetter
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from eventstore import errors, header
from eventstore.errors import ConcurrencyConflictError, DamagedRowError, StreamTruncatedError
from eventstore.header import HEADER_NAMES, VERSION, Partition, RecordedEvent, StreamT, StreamT_co
from eventstore.port import PAGE_SIZE, Row, pages, pause

T = TypeVar("T")
P = ParamSpec("P")
ReaderT = TypeVar("ReaderT", bound="Reader[Any]")


@dataclass(frozen=True, slots=True)
class Selection:
    """The names of the properties to select from events and from the header. None selects all.

    `query` names all properties that a table query for both has to read.
    """

    events: frozenset[str] | None
    header: frozenset[str] | None
    query: tuple[str, ...] | None

    @classmethod
    def of(cls, events: Sequence[str] | None, header: Sequence[str] | None) -> Selection:
        """Return the selection of these property names of events and of the header.

        If `events` is None, all properties of both are selected, whatever `header` names. If only `header` is None, no
        stream properties are selected.
        """
        if events is None:
            return EVERYTHING
        return _selection(tuple(events), None if header is None else tuple(header))


EVERYTHING = Selection(None, None, None)


@lru_cache(maxsize=256)
def _selection(events: tuple[str, ...], own: tuple[str, ...] | None) -> Selection:
    query = tuple(dict.fromkeys((*HEADER_NAMES, *events, *(own or ()))))
    return Selection(frozenset(events) - {VERSION}, None if own is None else frozenset(own), query)


@dataclass(frozen=True, slots=True)
class StreamSlice(Generic[StreamT_co]):
    """Consecutive events and their stream. `is_end_of_stream` says that no event follows in the read's direction."""

    stream: StreamT_co
    events: tuple[RecordedEvent, ...]
    is_end_of_stream: bool

    @property
    def has_events(self) -> bool:
        """Whether the slice has an event."""
        return bool(self.events)


@dataclass(frozen=True, slots=True)
class StreamWriteResult(Generic[StreamT_co]):
    """A stream after a write, the events with their versions, and the included rows with their ETags.

    `repeated`: an idempotent write found its events stored. Then `includes` is empty, and later events may exist.
    """

    stream: StreamT_co
    events: tuple[RecordedEvent, ...]
    includes: tuple[header.Include, ...] = ()
    repeated: bool = False


async def read_rows(partition: Partition, first: str, last: str, select: Sequence[str] | None) -> list[Row]:
    """Read the rows `first` to `last`, inclusive, with selected properties. Costs one request per page."""
    query = partial(partition.table.query, partition.key, first, last, select=select)
    rows_of_pages = [page.rows async for page in pages(query)]
    rows = list(chain.from_iterable(rows_of_pages))
    if len(rows_of_pages) > 1:
        rows.sort(key=attrgetter("row_key"))  # Cosmos DB guarantees no order
    return rows


async def read_header(blank: StreamT) -> StreamT | None:
    """Read the header of the stream in the partition of `blank`. Return None if there is no header."""
    partition = blank.partition
    row = await partition.table.get(partition.key, partition.header)
    return None if row is None else stream_read(blank, row, EVERYTHING)


async def with_watermark(stream: StreamT) -> StreamT:
    """Return the stream with its low watermark. Costs one request if the watermark is unknown.

    Raises `ConcurrencyConflictError` if the stream has changed.
    """
    if stream.first_version:
        return stream
    current = await read_header(stream)
    if current is None or current.etag != stream.etag:
        raise ConcurrencyConflictError(str(stream.partition), "its header has been changed since it was read")
    return replace(stream, first_version=current.first_version)


def stream_read(blank: StreamT, row: Row, selection: Selection) -> StreamT:
    """Return `blank` with the selected content of its header row. Raises `StreamDeletedError` for a tombstone."""
    if header.is_tombstone(row):
        raise errors.StreamDeletedError(str(blank.partition))
    version, first_version = header.versions_of(row)
    names, properties = selection.header, None
    if selection.events is None or names is not None:
        properties = header.FrozenProperties(
            {
                name: value
                for name, value in row.properties.items()
                if name not in HEADER_NAMES and (names is None or name in names)
            }
        )
    return replace(
        blank,
        etag=row.etag,
        version=version,
        first_version=first_version,
        properties=properties,
        partial=names is not None,
    )


async def read_ids(partition: Partition) -> list[tuple[int, str]]:
    """Return the version and id of each event that has an id. Costs one request per 1,000 ids."""
    first = partition.event_id("")
    # "." follows "-" in ASCII, so it bounds all keys with the prefix of ids.
    return [
        (version, row.row_key.removeprefix(first))
        for row in await read_rows(partition, first, first[:-1] + ".", (VERSION,))
        if row.row_key.startswith(first) and isinstance(version := row.properties.get(VERSION), int)
    ]


def events_in(
    partition: Partition, rows: Iterable[Row], first: int, last: int, selection: Selection
) -> tuple[RecordedEvent, ...]:
    """Return the events `first` to `last`, inclusive, that are among the rows. Stops at the first missing version."""
    events: list[RecordedEvent] = []
    expected = first
    names = selection.events
    for row in rows:
        version = partition.version_of(row.row_key)
        if version is None or version < first:
            continue
        if version != expected or version > last:
            break
        frozen = header.frozen_copy(row.properties, names)
        events.append(RecordedEvent(version, frozen, None, row.timestamp, row.etag))
        expected += 1
    return tuple(events)


READ_ATTEMPTS = 8


class _ChangedMeanwhileError(Exception):
    """Raised to restart a read.

    The arguments are the header's ETag and the version of the missing event, or None and 0 if the header has changed.
    """


def _repeated(
    read: Callable[Concatenate[ReaderT, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[ReaderT, P], Coroutine[Any, Any, T]]:
    """Decorate a read to pause and restart on `_ChangedMeanwhileError`, or finally raise `ConcurrencyConflictError`."""

    @wraps(read)
    async def repeated(self: ReaderT, /, *args: P.args, **named: P.kwargs) -> T:
        partition, promised = self.blank.partition, None
        for failures in range(1, READ_ATTEMPTS + 1):
            try:
                return await read(self, *args, **named)
            except _ChangedMeanwhileError as error:
                etag, missing = error.args
                if etag is not None and etag == promised:
                    # Truncation changes the header before it deletes events: same header, so the row is corrupt.
                    problem = "is missing, although the stream's header promises it"
                    raise DamagedRowError(partition.key, partition.event(missing), problem) from None
                promised = etag
            if failures < READ_ATTEMPTS:
                await pause(partition.table, failures)
        raise ConcurrencyConflictError(str(partition), "it changed during every attempt to read it")

    return repeated


@dataclass(frozen=True, slots=True)
class Reader(Generic[StreamT]):
    """Reads one stream. `blank` is the transient stream of its partition, from which results are made."""

    blank: StreamT
    selection: Selection
    ids: bool = False

    @_repeated
    async def forwards(self, start_version: int, slice_size: int | None) -> StreamSlice[StreamT] | None:
        """Read header and up to `slice_size` events from a version on. Return None if the stream does not exist."""
        _check(start_version, slice_size)
        partition, selection = self.blank.partition, self.selection
        size = header.MAX_VERSION if slice_size is None else slice_size
        # From version 1 on, the first page has header and events.
        end = partition.event(min(size, header.MAX_VERSION)) if start_version == 1 else partition.header
        page = await partition.table.query(partition.key, partition.header, end, select=selection.query)
        rows: Sequence[Row] = page.rows
        if page.continuation is not None and (not rows or rows[0].row_key != partition.header):
            # After an empty page, or in Cosmos DB, which guarantees no order, the header may be on a later page.
            rows = await read_rows(partition, partition.header, end, selection.query)
        if not rows or rows[0].row_key != partition.header:
            return None
        stream = stream_read(self.blank, rows[0], selection)
        first = max(start_version, stream.first_version)
        last = min(stream.version, first + size - 1)
        events = events_in(partition, rows, first, last, selection)
        if first + len(events) <= last:
            events += await self._promised(stream, first + len(events), last)
        return StreamSlice(stream, await self._with_ids(events), last >= stream.version)

    @_repeated
    async def with_rows(self, last: str) -> tuple[StreamT, tuple[Row, ...]] | None:
        """Read the header, and the rows that sort after it up to `last`. Return None if the stream does not exist."""
        partition, select = self.blank.partition, self.selection.query
        query = partial(partition.table.query, partition.key, partition.header, last, select=select)
        rows_of_pages = [page.rows async for page in pages(query)]
        rows = sorted(chain.from_iterable(rows_of_pages), key=attrgetter("row_key"))
        if not rows or rows[0].row_key != partition.header:
            return None
        stream = stream_read(self.blank, rows[0], self.selection)
        if len(rows_of_pages) > 1:
            # Included rows may have changed between the pages, unlike events.
            again = await read_rows(partition, partition.header, partition.header, (VERSION,))
            if not again or again[0].etag != stream.etag:
                raise _ChangedMeanwhileError(None, 0)
        return stream, tuple(rows[1:])

    @_repeated
    async def backwards(
        self, start_version: int | None, slice_size: int | None
    ) -> StreamSlice[StreamT] | None:
        """Read events newest first, from a version or the newest event. Return None if the stream does not exist."""
        _check(start_version, slice_size)
        partition, selection = self.blank.partition, self.selection
        query = None if selection.events is None else (*HEADER_NAMES, *sorted(selection.header or ()))
        rows = await read_rows(partition, partition.header, partition.header, query)
        if not rows:
            return None
        stream = stream_read(self.blank, rows[0], selection)
        last = stream.version if start_version is None else min(start_version, stream.version)
        first = stream.first_version
        if slice_size is not None:
            first = max(first, last - slice_size + 1)
        events = await self._promised(stream, first, last) if first <= last else ()
        return StreamSlice(stream, await self._with_ids(events[::-1]), first <= stream.first_version)

    async def events(self, stream: header.StreamValue, first: int, last: int) -> tuple[RecordedEvent, ...]:
        """Read the events `first` to `last`, inclusive. Raises `StreamTruncatedError` if one of them does not exist."""
        events = () if first < stream.first_version else await self._read(stream, first, last)
        if len(events) <= last - first:
            raise StreamTruncatedError(str(stream.partition), first + len(events))
        return events

    async def one_by_one(self, start_version: int) -> AsyncIterator[RecordedEvent]:
        """Yield the events from a version to the newest one at the time of the call. Raises like `Stream.iterate`."""
        # One row of the first page is the header.
        first_page = await self.forwards(start_version, PAGE_SIZE - 1)
        if first_page is None:
            raise errors.StreamNotFoundError(str(self.blank.partition))
        for event in first_page.events:
            yield event
        stream = first_page.stream
        following = first_page.events[-1].version + 1 if first_page.events else stream.version + 1
        for first in range(following, stream.version + 1, PAGE_SIZE):
            for event in await self.events(stream, first, min(first + PAGE_SIZE - 1, stream.version)):
                yield event

    async def _promised(self, stream: header.StreamValue, first: int, last: int) -> tuple[RecordedEvent, ...]:
        events = await self._read(stream, first, last)
        if len(events) <= last - first:
            raise _ChangedMeanwhileError(stream.etag, first + len(events))
        return events

    async def _read(self, stream: header.StreamValue, first: int, last: int) -> tuple[RecordedEvent, ...]:
        partition, selection = stream.partition, self.selection
        rows = await read_rows(partition, partition.event(first), partition.event(last), selection.query)
        return events_in(partition, rows, first, last, selection)

    async def _with_ids(self, events: tuple[RecordedEvent, ...]) -> tuple[RecordedEvent, ...]:
        if not self.ids:
            return events
        found = await read_ids(self.blank.partition)
        ids = {version: header.EventId(value) for version, value in found if value}
        return tuple([replace(event, id=ids.get(event.version)) for event in events])


def _check(start_version: int | None, slice_size: int | None) -> None:
    if start_version is not None and start_version < 1:
        raise ValueError(f"start_version is {start_version}; versions count from 1.")
    if slice_size is not None and slice_size < 1:
        raise ValueError(f"slice_size is {slice_size}; it must be at least 1.")
