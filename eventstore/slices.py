"""Reading a stream: forwards, backwards, or event by event.

What is read belongs together. Forwards from version 1 that is one range of rows, the header at its beginning;
otherwise the header is read first, and the events that it promises after it. If one of those is missing, or
the header changed while several pages were read, the read starts again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from eventstore.errors import ConcurrencyConflictError, StreamNotFoundError, StreamTruncatedError
from eventstore.events import VERSION, RecordedEvent
from eventstore.header import HEADER_NAMES
from eventstore.partition import MAX_VERSION
from eventstore.port import PAGE_SIZE, Row
from eventstore.reading import RowRange, Selection, events_in, read_rows, stream_read
from eventstore.results import StreamSlice
from eventstore.stream_value import StreamT, StreamValue

READ_ATTEMPTS = 8

T = TypeVar("T")


class _ChangedMeanwhileError(Exception):
    """Raised within a read that has to start again."""


@dataclass(frozen=True, slots=True)
class Reader(Generic[StreamT]):
    """Reads one stream, given as a transient value, and of each row what is selected."""

    blank: StreamT
    selection: Selection

    async def forwards(self, start_version: int, slice_size: int | None) -> StreamSlice[StreamT] | None:
        """Read events from a version on, None when there is no stream."""
        _check(start_version, slice_size)
        return await self._until_consistent(lambda: self._forwards(start_version, slice_size))

    async def backwards(
        self, start_version: int | None, slice_size: int | None
    ) -> StreamSlice[StreamT] | None:
        """Read events from a version, or the newest, down; None when there is no stream."""
        _check(start_version, slice_size)
        return await self._until_consistent(lambda: self._backwards(start_version, slice_size))

    async def with_rows(self, last: str) -> tuple[StreamT, tuple[Row, ...]] | None:
        """Read the header and the rows behind it up to a row key, None when there is no stream."""
        return await self._until_consistent(lambda: self._with_rows(last))

    async def events(self, stream: StreamValue, first: int, last: int) -> tuple[RecordedEvent, ...]:
        """Read some events of a stream that was read before. Raises `StreamTruncatedError`."""
        if first < stream.first_version:
            raise StreamTruncatedError(str(stream.partition), first)
        reading, events = await self._read(stream, first, last)
        if events is None:
            there = {stream.partition.version_of(row.row_key) for row in reading.rows}
            missing = next(version for version in range(first, last + 1) if version not in there)
            raise StreamTruncatedError(str(stream.partition), missing)
        return events

    async def one_by_one(self, start_version: int) -> AsyncIterator[RecordedEvent]:
        """Give the events that the stream has now, page by page. Raises `StreamTruncatedError`."""
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
        for _ in range(READ_ATTEMPTS):
            with suppress(_ChangedMeanwhileError):
                return await read()
        raise ConcurrencyConflictError(str(self.blank.partition), "it changed each time that it was read")

    async def _forwards(self, start_version: int, slice_size: int | None) -> StreamSlice[StreamT] | None:
        partition, selection = self.blank.partition, self.selection
        size = MAX_VERSION if slice_size is None else slice_size
        covered = min(size, MAX_VERSION) if start_version == 1 else 0
        end = partition.event(covered) if covered else partition.header
        reading = await read_rows(partition, partition.header, end, selection.query)
        if not reading.rows or reading.rows[0].row_key != partition.header:
            return None
        stream = stream_read(self.blank, reading.rows[0], selection)
        first = max(start_version, stream.first_version)
        last = min(stream.version, first + size - 1)
        if last > covered and first <= last:
            events = await self._promised(stream, first, last)
        else:
            events = await _consistent(
                stream, reading, events_in(partition, reading.rows, first, last, selection)
            )
        return StreamSlice(stream, events, last >= stream.version)

    async def _with_rows(self, last: str) -> tuple[StreamT, tuple[Row, ...]] | None:
        partition = self.blank.partition
        reading = await read_rows(partition, partition.header, last, self.selection.query)
        if not reading.rows or reading.rows[0].row_key != partition.header:
            return None
        stream = stream_read(self.blank, reading.rows[0], self.selection)
        if reading.pages > 1 and not await _is_unchanged(stream):
            raise _ChangedMeanwhileError
        return stream, tuple(reading.rows[1:])

    async def _backwards(
        self, start_version: int | None, slice_size: int | None
    ) -> StreamSlice[StreamT] | None:
        partition = self.blank.partition
        reading = await read_rows(partition, partition.header, partition.header, self._header_query())
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
        reading, events = await self._read(stream, first, last)
        return await _consistent(stream, reading, events)

    async def _read(
        self, stream: StreamValue, first: int, last: int
    ) -> tuple[RowRange, tuple[RecordedEvent, ...] | None]:
        partition = stream.partition
        reading = await read_rows(
            partition, partition.event(first), partition.event(last), self.selection.query
        )
        return reading, events_in(partition, reading.rows, first, last, self.selection)

    def _header_query(self) -> tuple[str, ...] | None:
        if self.selection.events is None:
            return None
        return (*HEADER_NAMES, *sorted(self.selection.header or ()))


def _check(start_version: int | None, slice_size: int | None) -> None:
    if start_version is not None and start_version < 1:
        raise ValueError(f"Versions count from 1; the read starts at {start_version}.")
    if slice_size is not None and slice_size < 1:
        raise ValueError(f"A slice has at least one event; {slice_size} are asked for.")


async def _consistent(
    stream: StreamValue, reading: RowRange, events: tuple[RecordedEvent, ...] | None
) -> tuple[RecordedEvent, ...]:
    """Return the events that were read. Raises when they do not belong together with the stream."""
    if events is None or (reading.pages > 1 and not await _is_unchanged(stream)):
        raise _ChangedMeanwhileError
    return events


async def _is_unchanged(stream: StreamValue) -> bool:
    header = stream.partition.header
    reading = await read_rows(stream.partition, header, header, (VERSION,))
    return bool(reading.rows) and reading.rows[0].etag == stream.etag
