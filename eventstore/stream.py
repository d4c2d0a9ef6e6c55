"""A stream of events: one header row and one row for each event, all in one partition.

Every change of a stream is one transaction that begins with its header, under the header's ETag: of two
writers that hold the same stream value one succeeds, and the other gets a `ConcurrencyConflictError`.
After any conflict, and after a `StoreUnavailableError` whose outcome is unknown, read the stream again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TypeVar

from eventstore.errors import StreamNotFoundError
from eventstore.events import EventData, RecordedEvent
from eventstore.header import (
    HEADER_NAMES,
    header_operation,
    header_row,
    is_header,
    stream_written,
)
from eventstore.includes import Include
from eventstore.partition import Partition
from eventstore.port import Operation, Row, Value
from eventstore.properties import NO_PROPERTIES, stream_properties
from eventstore.reading import Selection, read_header, read_rows, with_watermark
from eventstore.results import StreamSlice, StreamWriteResult
from eventstore.slices import Reader
from eventstore.stream_value import StreamValue
from eventstore.truncation import CutRows, delete, truncate
from eventstore.writing import (
    Draft,
    ExpectedVersion,
    all_includes,
    append,
    append_in_parts,
    append_once,
    transact,
)

T = TypeVar("T")


class Stream(StreamValue):
    """What is known of a stream, with the verbs that read and change streams.

    Each verb takes such a value, or a `Partition`, and gives back a new one. Without an ETag it is *transient*: not
    written yet. Every verb that meets a stream which was deleted raises `StreamDeletedError`, or
    `ConcurrencyConflictError` when it did not read the header.

    To restore a value that was kept elsewhere, give its parts to the constructor: partition, ETag and version, and what
    else is known. Nothing is read for that, and a write keeps what is not known. To set properties or to truncate takes
    one request more when `first_version` was not given.
    """

    __slots__ = ()

    @classmethod
    async def provision(
        cls,
        partition: Partition,
        properties: Mapping[str, Value | None] | None = None,
        includes: Iterable[Include] = (),
    ) -> Stream:
        """Make a stream without events. One request. `includes` are changed in the same transaction.

        Raises `ConcurrencyConflictError` when the stream is there already, or was deleted.
        """
        own = stream_properties(properties or NO_PROPERTIES)
        operation = Operation.insert(partition.header, header_row(0, 1, own))
        (etag, *_) = await transact(partition, [operation, *_operations(includes)])
        return cls(partition, etag, 0, 1, own)

    @classmethod
    async def open(cls, partition: Partition) -> Stream:
        """Read the header of a stream. One request.

        Raises `StreamNotFoundError`.
        """
        return _found(await cls.try_open(partition), partition)

    @classmethod
    async def try_open(cls, partition: Partition) -> Stream | None:
        """Read the header of a stream, None when there is no stream. One request."""
        return await read_header(cls(partition))

    @classmethod
    async def try_open_with(
        cls, partition: Partition, last: str, *, select: Sequence[str], header: Sequence[str]
    ) -> tuple[Stream, tuple[Row, ...]] | None:
        """Read the header and the caller's own rows behind it, up to the row key `last`; None without a stream.

        Included rows whose keys sort between `SS-HEAD` and `SS-SE-` are read together with the header that way, and
        no event is. `header` names the stream's properties to read and `select` those of the rows. One request for each
        1,000 rows, and one more when the read took several pages. Raises `ConcurrencyConflictError` when the stream
        changed each time.
        """
        return await Reader(cls(partition), Selection.of(select, header)).with_rows(last)

    @classmethod
    async def exists(cls, partition: Partition) -> bool:
        """Tell whether there is a stream, and it was not deleted. One request."""
        reading = await read_rows(partition, partition.header, partition.header, HEADER_NAMES)
        return any(is_header(row) for row in reading.rows)

    @classmethod
    async def write(
        cls,
        target: Stream | Partition,
        *events: EventData,
        expected_version: int | ExpectedVersion | None = None,
        properties: Mapping[str, Value | None] | None = None,
        includes: Iterable[Include] = (),
        idempotent: bool = False,
    ) -> StreamWriteResult[Stream]:
        """Append events, in one transaction with their includes and, if given, new stream properties.

        `target` is a stream value, or a partition with the version that its stream is expected to have; 0
        means that it must not exist. One request; a partition with another expectation than 0 costs one more, and
        with `ExpectedVersion.ANY` or `EXISTS` two more for each time that someone else was faster.

        An `idempotent` write may be repeated: if the same events, all of them with ids, stand already in the versions
        where they would be written, to the byte, they are the result. It needs to look only when the write was refused
        or its answer was lost: two requests and one for each event. The events of a stream are compared, not what
        was written with them.

        Raises `ConcurrencyConflictError` when the stream is not the one expected, else
        `DuplicateEventError` when an event's id is known, else `IncludeConflictError`;
        `PayloadTooLargeError` before any I/O. Nothing is written then.
        """
        stream, expected = _position(target, expected_version)
        draft = Draft.of(events, includes, properties)
        write = append_once if idempotent else append
        return await write(draft, stream, expected)

    @classmethod
    async def write_in_parts(
        cls,
        target: Stream | Partition,
        events: Iterable[EventData],
        *,
        expected_version: int | ExpectedVersion | None = None,
        properties: Mapping[str, Value | None] | None = None,
        idempotent: bool = False,
    ) -> StreamWriteResult[Stream]:
        """Append events that may be too many for one transaction, in few of them.

        Each part is atomic, all together are not. The last one sets the properties, if they are given. Every part is
        checked before the first is sent. One request for each part, and those of `write` for the first.

        Raises what `write` raises when nothing is stored, and `PartialWriteError`, which says how many events are, when
        something is or may be. An `idempotent` write that is repeated after that goes on where it stopped.
        """
        stream, expected = _position(target, expected_version)
        own = None if properties is None else stream_properties(properties)
        return await append_in_parts(tuple(events), stream, expected, own, idempotent=idempotent)

    @classmethod
    async def set_properties(
        cls, stream: Stream, properties: Mapping[str, Value | None], includes: Iterable[Include] = ()
    ) -> Stream:
        """Replace all properties of a stream. One request. `includes` are changed in the same transaction.

        Raises `ConcurrencyConflictError` when the stream was changed, `ValueError` when it is transient.
        """
        if stream.etag is None:
            raise ValueError("The stream is transient: provision or write it before its properties are set.")
        own = stream_properties(properties)
        stream = await with_watermark(stream)
        header = header_operation(stream, stream.version, own)
        (etag, *_) = await transact(stream.partition, [header, *_operations(includes)])
        return stream_written(stream, etag, stream.version, own)

    @classmethod
    async def read(
        cls,
        partition: Partition,
        start_version: int = 1,
        slice_size: int | None = 1000,
        *,
        select: Sequence[str] | None = None,
        header: Sequence[str] | None = None,
        ids: bool = False,
    ) -> StreamSlice[Stream]:
        """Read a stream's header and its events from a version on. Raises `StreamNotFoundError`.

        See `try_read`.
        """
        found = await cls.try_read(
            partition, start_version, slice_size, select=select, header=header, ids=ids
        )
        return _found(found, partition)

    @classmethod
    async def try_read(
        cls,
        partition: Partition,
        start_version: int = 1,
        slice_size: int | None = 1000,
        *,
        select: Sequence[str] | None = None,
        header: Sequence[str] | None = None,
        ids: bool = False,
    ) -> StreamSlice[Stream] | None:
        """Read a stream's header and its events from a version on, None when there is no stream.

        `slice_size` is the number of events to read, None for all. `select` names the event properties to
        read and `header` the stream's own ones; with `select` alone none of the stream's own are read.
        Events below the low watermark are not there. With `ids` the events have their ids, which are in rows of their
        own: one more request for each 1,000 ids of the stream.

        From version 1 on it takes one request for each 1,000 rows, from a later version on one more. Events that are
        appended meanwhile are not given. Raises `ConcurrencyConflictError` when events were cut away meanwhile each
        time that it was read.
        """
        return await Reader(cls(partition), Selection.of(select, header), ids).forwards(
            start_version, slice_size
        )

    @classmethod
    async def read_backwards(
        cls,
        partition: Partition,
        start_version: int | None = None,
        slice_size: int | None = 1000,
        *,
        select: Sequence[str] | None = None,
        header: Sequence[str] | None = None,
        ids: bool = False,
    ) -> StreamSlice[Stream]:
        """Read a stream's header and its events from a version down, None for the newest; the newest comes first.

        Two requests, and one more for each further 1,000 events. Raises `StreamNotFoundError`; otherwise like
        `try_read`.
        """
        reader = Reader(cls(partition), Selection.of(select, header), ids)
        return _found(await reader.backwards(start_version, slice_size), partition)

    @classmethod
    async def read_last(
        cls,
        partition: Partition,
        count: int = 1,
        *,
        select: Sequence[str] | None = None,
        header: Sequence[str] | None = None,
        ids: bool = False,
    ) -> StreamSlice[Stream]:
        """Read a stream's header and its last events, the oldest of them first. Like `read_backwards`."""
        found = await cls.read_backwards(partition, None, count, select=select, header=header, ids=ids)
        return StreamSlice(found.stream, found.events[::-1], is_end_of_stream=True)

    @classmethod
    async def iterate(
        cls, partition: Partition, start_version: int = 1, *, select: Sequence[str] | None = None
    ) -> AsyncIterator[RecordedEvent]:
        """Give the events of a stream one by one, up to the version that it has at the beginning.

        Holds a page of them at a time. One request for each 1,000 events; from a later version than 1 on, one more.
        Raises `StreamNotFoundError`, and `StreamTruncatedError` when events are cut away that would come next.
        """
        reader = Reader(cls(partition), Selection.of(select, None))
        async for event in reader.one_by_one(start_version):
            yield event

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
        return await Reader(stream, Selection.of(select, None)).events(stream, first, last)

    @classmethod
    async def truncate(
        cls,
        stream: Stream,
        first_version: int,
        properties: Mapping[str, Value | None] | None = None,
        includes: Iterable[Include] = (),
        rows: CutRows | None = None,
    ) -> Stream:
        """Cut away all events before `first_version`, and if given replace the stream's properties.

        The first transaction moves the low watermark, and only then, or with it, events are deleted: after a
        crash they count as cut, and truncating again deletes what is left of them. Two requests and one more
        for each 99 rows. Ids of cut events are forgotten. `includes` are changed with the first transaction.
        `rows`, if `eventstore.truncation.rows_to_cut` has read them, save the two requests.

        Raises `ConcurrencyConflictError` when the stream was changed before or meanwhile.
        """
        own = None if properties is None else stream_properties(properties)
        return await truncate(stream, first_version, own, all_includes((), includes), rows)

    @classmethod
    async def delete(cls, target: Stream | Partition) -> None:
        """Delete a stream: its events, their ids and its properties. Included rows stay.

        The header stays as a tombstone, so that the place is never used again and whoever holds the stream gets a
        conflict. Given a partition, the stream is deleted as it is, and a deletion that was broken off is finished.
        Two requests, one for each 99 rows, and one more for a partition. Raises
        `ConcurrencyConflictError` when the stream was changed before or meanwhile, and `StreamNotFoundError`.
        """
        if isinstance(target, Stream) and target.etag is None:
            raise ValueError("The stream is transient: there is nothing to delete.")
        await delete(target if isinstance(target, Stream) else cls(target))


def _operations(includes: Iterable[Include]) -> list[Operation]:
    return [include.operation() for include in all_includes((), includes)]


def _found(value: T | None, partition: Partition) -> T:
    if value is None:
        raise StreamNotFoundError(str(partition))
    return value


def _position(
    target: Stream | Partition, expected_version: int | ExpectedVersion | None
) -> tuple[Stream, int | ExpectedVersion | None]:
    """Return where a write goes, and what is expected to be there; None for a stream value."""
    if not isinstance(target, Stream | Partition):
        raise TypeError(f"A write goes to a Stream or a Partition, not to a {type(target).__name__}.")
    if isinstance(target, Stream):
        if expected_version is not None:
            raise ValueError("A stream value has its version; an expected version goes with a partition.")
        return target, None
    if expected_version is None:
        raise ValueError("A write to a partition needs the expected version; 0 when there is no stream yet.")
    if not isinstance(expected_version, int | ExpectedVersion):
        raise TypeError(f"The expected version is {expected_version!r}: give a number or an ExpectedVersion.")
    if isinstance(expected_version, int) and expected_version < 0:
        raise ValueError(f"The expected version is {expected_version}; versions count from 1.")
    return Stream(target), expected_version
