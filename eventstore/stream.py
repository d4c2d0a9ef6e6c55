"""A stream of events: one header row and one row for each event, all in one partition.

Every change of a stream is one transaction that begins with its header, under the header's ETag: of two
writers that hold the same stream value one succeeds, and the other gets a `ConcurrencyConflictError`.
After any conflict, and after a `StoreUnavailableError` whose outcome is unknown, read the stream again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from eventstore.errors import (
    ConcurrencyConflictError,
    StreamNotFoundError,
    StreamTruncatedError,
)
from eventstore.events import VERSION, EventData, RecordedEvent
from eventstore.header import (
    FIRST_VERSION,
    header_operation,
    header_row,
    properties_of,
    stream_properties,
    versions_of,
)
from eventstore.includes import Include
from eventstore.limits import MAX_OPERATIONS, prepare
from eventstore.partition import MAX_VERSION, Partition
from eventstore.port import Operation, Properties, Row, Value
from eventstore.reading import EVERYTHING, ChangedMeanwhileError, Selection, events_in, read_rows
from eventstore.results import StreamSlice, StreamWriteResult
from eventstore.truncation import rows_below
from eventstore.writing import all_includes, event_operations, recorded, transact, with_etags

READ_ATTEMPTS = 8

_NO_PROPERTIES: Properties = {}


@dataclass(frozen=True, slots=True)
class Stream:
    """What is known of a stream: the value that each verb takes and gives back.

    Without an ETag it is *transient*: not written yet. To restore a value that was kept elsewhere, give its
    parts to the constructor; nothing is read for that.
    """

    partition: Partition
    etag: str | None = None
    version: int = 0
    first_version: int = 1
    """The low watermark: the version of the first event that has not been cut away."""
    properties: Properties | None = None
    """The stream's own properties, None when they were not read."""
    partial: bool = False
    """True when only some of the properties were read; a write keeps the others then."""

    @classmethod
    async def provision(
        cls, partition: Partition, properties: Mapping[str, Value | None] | None = None
    ) -> Stream:
        """Make a stream without events. One request.

        Raises `ConcurrencyConflictError` when the stream is there already.
        """
        own = stream_properties(properties or _NO_PROPERTIES)
        operation = Operation.insert(partition.header, header_row(0, 1, own))
        (etag,) = await transact(partition, [operation])
        return cls(partition, etag, 0, 1, own)

    @classmethod
    async def open(cls, partition: Partition) -> Stream:
        """Read the header of a stream. One request.

        Raises `StreamNotFoundError`.
        """
        stream = await cls.try_open(partition)
        if stream is None:
            raise StreamNotFoundError(str(partition))
        return stream

    @classmethod
    async def try_open(cls, partition: Partition) -> Stream | None:
        """Read the header of a stream, None when there is no stream. One request."""
        row = await partition.table.get(partition.key, partition.header)
        return None if row is None else cls._of(partition, row, EVERYTHING)

    @classmethod
    async def exists(cls, partition: Partition) -> bool:
        """Tell whether there is a stream. One request."""
        rows = await read_rows(partition, partition.header, partition.header, (VERSION,))
        return bool(rows.rows)

    @classmethod
    async def write(
        cls,
        target: Stream | Partition,
        *events: EventData,
        expected_version: int | None = None,
        properties: Mapping[str, Value | None] | None = None,
        includes: Iterable[Include] = (),
    ) -> StreamWriteResult:
        """Append events, in one transaction with their includes and, if given, new stream properties.

        `target` is a stream value, or a partition with the version that its stream is expected to have; 0
        means that it must not exist. One request; a partition with a version above 0 costs another one.

        Raises `ConcurrencyConflictError` when the stream is not the one expected, else
        `DuplicateEventError` when an event's id is known, else `IncludeConflictError`;
        `PayloadTooLargeError` before any I/O. Nothing is written then.
        """
        if not events:
            raise ValueError("A write needs at least one event.")
        own = None if properties is None else stream_properties(properties)
        partition, version = _position(target, expected_version)
        changes = event_operations(partition, version, events)
        included = all_includes(events, includes)
        changes.extend([include.operation() for include in included])
        if isinstance(target, Stream):
            stream = target
        else:
            stream = await cls._expected(partition, version, own, changes)
        header = header_operation(stream, version + len(events), own)
        etags = await transact(partition, [header, *changes])
        if included:
            included = with_etags(included, etags)
        written = _after(stream, etags[0], version + len(events), own)
        return StreamWriteResult(written, recorded(version, events), included)

    @classmethod
    async def set_properties(cls, stream: Stream, properties: Mapping[str, Value | None]) -> Stream:
        """Replace all properties of a stream. One request.

        Raises `ConcurrencyConflictError` when the stream was changed, `ValueError` when it is transient.
        """
        if stream.etag is None:
            raise ValueError("The stream is transient: provision or write it before its properties are set.")
        own = stream_properties(properties)
        (etag,) = await transact(stream.partition, [header_operation(stream, stream.version, own)])
        return _after(stream, etag, stream.version, own)

    @classmethod
    async def read(
        cls,
        partition: Partition,
        start_version: int = 1,
        slice_size: int | None = 1000,
        *,
        select: Sequence[str] | None = None,
        header: Sequence[str] | None = None,
    ) -> StreamSlice:
        """Read a stream's header and its events from a version on. Raises `StreamNotFoundError`.

        See `try_read`.
        """
        found = await cls.try_read(partition, start_version, slice_size, select=select, header=header)
        if found is None:
            raise StreamNotFoundError(str(partition))
        return found

    @classmethod
    async def try_read(
        cls,
        partition: Partition,
        start_version: int = 1,
        slice_size: int | None = 1000,
        *,
        select: Sequence[str] | None = None,
        header: Sequence[str] | None = None,
    ) -> StreamSlice | None:
        """Read a stream's header and its events from a version on, None when there is no stream.

        `slice_size` is the number of events to read, None for all. `select` names the event properties to
        read and `header` the stream's own ones; with `select` alone none of the stream's own are read.
        Events below the low watermark are not there.

        From version 1 on it takes one request for each 1,000 rows; from a later version on one more, and
        one more when the read took several pages, to see that the stream did not change meanwhile. Raises
        `ConcurrencyConflictError` when it changed each time that it was read.
        """
        if start_version < 1:
            raise ValueError(f"Versions count from 1; the read starts at {start_version}.")
        if slice_size is not None and slice_size < 1:
            raise ValueError(f"A slice has at least one event; {slice_size} are asked for.")
        selection = Selection.of(select, header)
        for _ in range(READ_ATTEMPTS):
            with suppress(ChangedMeanwhileError):
                return await cls._read_once(partition, start_version, slice_size, selection)
        raise ConcurrencyConflictError(str(partition), "it changed each time that it was read")

    @classmethod
    async def read_events(
        cls, stream: Stream, first: int, last: int, *, select: Sequence[str] | None = None
    ) -> tuple[RecordedEvent, ...]:
        """Read the events `first` to `last`, both included, of a stream that was read before.

        One request for each 1,000 events; the header is not read. Raises `StreamTruncatedError` when one of
        the events has been cut away.
        """
        if not 1 <= first <= last <= stream.version:
            raise ValueError(f"The events {first} to {last} of a stream with {stream.version} are asked for.")
        partition = stream.partition
        if first < stream.first_version:
            raise StreamTruncatedError(str(partition), first)
        reading = await read_rows(partition, partition.event(first), partition.event(last), select)
        events = events_in(partition, reading.rows, first, last, Selection.of(select, None))
        if events is None:
            there = {partition.version_of(row.row_key) for row in reading.rows}
            missing = next(version for version in range(first, last + 1) if version not in there)
            raise StreamTruncatedError(str(partition), missing)
        return tuple(events)

    @classmethod
    async def truncate(
        cls, stream: Stream, first_version: int, properties: Mapping[str, Value | None] | None = None
    ) -> Stream:
        """Cut away all events before `first_version`, and if given replace the stream's properties.

        The first transaction moves the low watermark, and only then, or with it, events are deleted: after a
        crash they count as cut, and truncating again deletes what is left of them. Two requests and one more
        for each 99 rows. Ids of cut events are forgotten. Raises `ConcurrencyConflictError` when the stream
        was changed before or meanwhile.
        """
        if stream.etag is None:
            raise ValueError("The stream is transient: it has nothing to cut away.")
        if not stream.first_version <= first_version <= stream.version + 1:
            raise ValueError(
                f"The stream's events {stream.first_version} to {stream.version} cannot be cut up to {first_version}."
            )
        partition, etag = stream.partition, stream.etag
        own = None if properties is None else stream_properties(properties)
        doomed = await rows_below(partition, first_version)
        if not doomed and own is None and first_version == stream.first_version:
            return stream
        mark: dict[str, Value] = {FIRST_VERSION: first_version}
        if own is None:
            header = Operation.merge(partition.header, mark, etag)
        else:
            header = Operation.replace(partition.header, header_row(stream.version, first_version, own), etag)
            stream = replace(stream, properties=own, partial=False)
        for start in range(0, max(len(doomed), 1), MAX_OPERATIONS - 1):
            deletes = [Operation.delete(row_key) for row_key in doomed[start : start + MAX_OPERATIONS - 1]]
            etag = (await transact(partition, [header, *deletes]))[0]
            header = Operation.merge(partition.header, mark, etag)
        return replace(stream, etag=etag, first_version=first_version)

    @classmethod
    def _of(cls, partition: Partition, row: Row, selection: Selection) -> Stream:
        version, first_version = versions_of(row)
        if selection.events is None:
            return cls(partition, row.etag, version, first_version, properties_of(row))
        if selection.header is None:
            return cls(partition, row.etag, version, first_version)
        own = properties_of(row, selection.header)
        return cls(partition, row.etag, version, first_version, own, partial=True)

    @classmethod
    async def _expected(
        cls, partition: Partition, version: int, own: Properties | None, changes: Sequence[Operation]
    ) -> Stream:
        """Return the stream at the version that a write expects. A write over a limit is refused before."""
        if version == 0:
            return cls(partition)
        prepare(partition.key, [Operation.insert(partition.header, own or _NO_PROPERTIES), *changes])
        stream = await cls.try_open(partition)
        if stream is None:
            raise ConcurrencyConflictError(
                str(partition), f"it does not exist, version {version} was expected"
            )
        if stream.version != version:
            detail = f"it is at version {stream.version}, version {version} was expected"
            raise ConcurrencyConflictError(str(partition), detail)
        return stream

    @classmethod
    async def _read_once(
        cls, partition: Partition, start_version: int, slice_size: int | None, selection: Selection
    ) -> StreamSlice | None:
        """Read the stream. Raises `ChangedMeanwhileError` when someone else changed it in the middle."""
        size = MAX_VERSION if slice_size is None else slice_size
        covered = min(start_version + size - 1, MAX_VERSION) if start_version == 1 else 0
        end = partition.event(covered) if covered else partition.header
        reading = await read_rows(partition, partition.header, end, selection.query)
        if not reading.rows or reading.rows[0].row_key != partition.header:
            return None
        stream = cls._of(partition, reading.rows[0], selection)
        first = max(start_version, stream.first_version)
        last = min(stream.version, first + size - 1)
        pages = reading.pages
        if last > covered and first <= last:
            reading = await read_rows(
                partition, partition.event(first), partition.event(last), selection.query
            )
            pages = max(pages, reading.pages)
        events = events_in(partition, reading.rows, first, last, selection)
        if events is None:
            raise ChangedMeanwhileError
        if pages > 1 and not await _is_unchanged(stream):
            raise ChangedMeanwhileError
        return StreamSlice(stream, tuple(events), last >= stream.version)


def _after(stream: Stream, etag: str, version: int, own: Properties | None) -> Stream:
    """Return the stream as it is after a write."""
    if own is not None:
        return Stream(stream.partition, etag, version, stream.first_version, own)
    is_new = stream.etag is None and stream.properties is None
    known = _NO_PROPERTIES if is_new else stream.properties
    return Stream(stream.partition, etag, version, stream.first_version, known, stream.partial)


async def _is_unchanged(stream: Stream) -> bool:
    header = stream.partition.header
    reading = await read_rows(stream.partition, header, header, (VERSION,))
    return bool(reading.rows) and reading.rows[0].etag == stream.etag


def _position(target: Stream | Partition, expected_version: int | None) -> tuple[Partition, int]:
    """Return where a write goes and the version that it follows."""
    if isinstance(target, Stream):
        if expected_version is not None:
            raise ValueError("A stream value has its version; an expected version goes with a partition.")
        return target.partition, target.version
    if expected_version is None:
        raise ValueError("A write to a partition needs the expected version; 0 when there is no stream yet.")
    if expected_version < 0:
        raise ValueError(f"The expected version is {expected_version}; versions count from 1.")
    return target, expected_version
