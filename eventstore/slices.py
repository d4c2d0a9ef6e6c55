"""Reading a stream: forwards, backwards, or event by event.

The header is read first, or together with the first page of events, and says which events there are. They never
change, so the pages after it are read as they come, whoever appends meanwhile. Only when an event is missing that the
header promises has it been cut away since, and the read starts again.

Rows of the caller do change: if they took several pages, the header is read again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from eventstore.backoff import pause
from eventstore.errors import (
    ConcurrencyConflictError,
    DamagedRowError,
    StreamNotFoundError,
    StreamTruncatedError,
)
from eventstore.events import EventId, RecordedEvent
from eventstore.header import HEADER_NAMES
from eventstore.partition import MAX_VERSION
from eventstore.port import PAGE_SIZE, Row
from eventstore.properties import VERSION
from eventstore.reading import Selection, events_in, read_first_rows, read_ids, read_rows, stream_read
from eventstore.results import StreamSlice
from eventstore.stream_value import StreamT, StreamValue

READ_ATTEMPTS = 8

T = TypeVar("T")


class _ChangedMeanwhileError(Exception):
    """Raised within a read that has to start again; with the stream and the event that it promised, if one is gone."""

    def __init__(self, stream: StreamValue | None = None, missing: int = 0) -> None:
        super().__init__(stream, missing)
        self.stream = stream
        self.missing = missing


@dataclass(frozen=True, slots=True)
class Reader(Generic[StreamT]):
    """Reads one stream, given as a transient value, and of each row what is selected; of events their ids if `ids`."""

    blank: StreamT
    selection: Selection
    ids: bool = False

    async def forwards(self, start_version: int, slice_size: int | None) -> StreamSlice[StreamT] | None:
        """Read events from a version on, None when there is no stream."""
        _check(start_version, slice_size)
        found = await self._until_consistent(lambda: self._forwards(start_version, slice_size))
        return await self._with_ids(found) if found and self.ids else found

    async def backwards(
        self, start_version: int | None, slice_size: int | None
    ) -> StreamSlice[StreamT] | None:
        """Read events from a version, or the newest, down; None when there is no stream."""
        _check(start_version, slice_size)
        found = await self._until_consistent(lambda: self._backwards(start_version, slice_size))
        return await self._with_ids(found) if found and self.ids else found

    async def with_rows(self, last: str) -> tuple[StreamT, tuple[Row, ...]] | None:
        """Read the header and the rows behind it up to a row key, None when there is no stream."""
        return await self._until_consistent(lambda: self._with_rows(last))

    async def events(self, stream: StreamValue, first: int, last: int) -> tuple[RecordedEvent, ...]:
        """Read some events of a stream that was read before. Raises `StreamTruncatedError`."""
        if first < stream.first_version:
            raise StreamTruncatedError(str(stream.partition), first)
        events = await self._read(stream, first, last)
        if len(events) <= last - first:
            raise StreamTruncatedError(str(stream.partition), first + len(events))
        return events

    async def one_by_one(self, start_version: int) -> AsyncIterator[RecordedEvent]:
        """Yield the events that the stream has now, page by page. Raises `StreamTruncatedError`."""
        # The header takes a row of the first page.
        found = await self.forwards(start_version, PAGE_SIZE - 1)
        if found is None:
            raise StreamNotFoundError(str(self.blank.partition))
        for event in found.events:
            yield event
        stream = found.stream
        following = found.events[-1].version + 1 if found.events else stream.version + 1
        for first in range(following, stream.version + 1, PAGE_SIZE):
            for event in await self.events(stream, first, min(first + PAGE_SIZE - 1, stream.version)):
                yield event

    async def _until_consistent(self, read: Callable[[], Awaitable[T]]) -> T:
        partition = self.blank.partition
        promised = None
        for failures in range(1, READ_ATTEMPTS + 1):
            try:
                return await read()
            except _ChangedMeanwhileError as error:
                if error.stream is not None and error.stream.etag == promised:
                    # Whoever cuts an event away changes the header first.
                    raise DamagedRowError(
                        partition.key, partition.event(error.missing), "is gone, and the header promises it"
                    ) from None
                promised = error.stream.etag if error.stream is not None else None
            if failures < READ_ATTEMPTS:
                await pause(partition.table, failures)
        raise ConcurrencyConflictError(str(partition), "it changed each time that it was read")

    async def _forwards(self, start_version: int, slice_size: int | None) -> StreamSlice[StreamT] | None:
        partition, selection = self.blank.partition, self.selection
        size = MAX_VERSION if slice_size is None else slice_size
        end = partition.event(min(size, MAX_VERSION)) if start_version == 1 else partition.header
        rows = await read_first_rows(partition, end, selection.query)
        if not rows or rows[0].row_key != partition.header:
            return None
        stream = stream_read(self.blank, rows[0], selection)
        first = max(start_version, stream.first_version)
        last = min(stream.version, first + size - 1)
        events = events_in(partition, rows, first, last, selection)
        if first + len(events) <= last:
            events += await self._promised(stream, first + len(events), last)
        return StreamSlice(stream, events, last >= stream.version)

    async def _with_rows(self, last: str) -> tuple[StreamT, tuple[Row, ...]] | None:
        partition = self.blank.partition
        reading = await read_rows(partition, partition.header, last, self.selection.query)
        if not reading.rows or reading.rows[0].row_key != partition.header:
            return None
        stream = stream_read(self.blank, reading.rows[0], self.selection)
        if reading.pages > 1:
            header = partition.header
            again = await read_rows(partition, header, header, (VERSION,))
            if not again.rows or again.rows[0].etag != stream.etag:
                raise _ChangedMeanwhileError
        return stream, tuple(reading.rows[1:])

    async def _backwards(
        self, start_version: int | None, slice_size: int | None
    ) -> StreamSlice[StreamT] | None:
        partition = self.blank.partition
        selection = self.selection
        query = None if selection.events is None else (*HEADER_NAMES, *sorted(selection.header or ()))
        reading = await read_rows(partition, partition.header, partition.header, query)
        if not reading.rows:
            return None
        stream = stream_read(self.blank, reading.rows[0], self.selection)
        last = stream.version if start_version is None else min(start_version, stream.version)
        first = (
            stream.first_version if slice_size is None else max(stream.first_version, last - slice_size + 1)
        )
        events = await self._promised(stream, first, last) if first <= last else ()
        return StreamSlice(stream, events[::-1], first <= stream.first_version)

    async def _promised(self, stream: StreamValue, first: int, last: int) -> tuple[RecordedEvent, ...]:
        """Read events that the header says are there."""
        events = await self._read(stream, first, last)
        if len(events) <= last - first:
            raise _ChangedMeanwhileError(stream, first + len(events))
        return events

    async def _read(self, stream: StreamValue, first: int, last: int) -> tuple[RecordedEvent, ...]:
        """Read events, up to the first that is not there."""
        partition, selection = stream.partition, self.selection
        reading = await read_rows(partition, partition.event(first), partition.event(last), selection.query)
        return events_in(partition, reading.rows, first, last, selection)

    async def _with_ids(self, found: StreamSlice[StreamT]) -> StreamSlice[StreamT]:
        ids = {
            version: EventId(event_id)
            for version, event_id in await read_ids(self.blank.partition)
            if event_id
        }
        return replace(
            found, events=tuple([replace(event, id=ids.get(event.version)) for event in found.events])
        )


def _check(start_version: int | None, slice_size: int | None) -> None:
    if start_version is not None and start_version < 1:
        raise ValueError(f"Versions count from 1; the read starts at {start_version}.")
    if slice_size is not None and slice_size < 1:
        raise ValueError(f"A slice has at least one event; {slice_size} are asked for.")
