"""A stream of events: one header row and one row for each event, all in one partition.

Every change is one transaction conditional on the header's ETag, so of two concurrent writers one gets a
`ConcurrencyConflictError`. After a conflict, or an error with an unknown outcome, read the stream again.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from eventstore import reading, writing
from eventstore.errors import StreamNotFoundError
from eventstore.header import (
    HEADER,
    HEADER_NAMES,
    EventData,
    Include,
    Partition,
    RecordedEvent,
    StreamValue,
    is_header,
    stream_properties,
)
from eventstore.keys import PLAIN_CHARACTERS, escape
from eventstore.port import Row, Substitute, Table, Value, pages

T = TypeVar("T")


class Stream(StreamValue):
    """A stream as last read or written, with the methods that read and change streams.

    Methods take a stream or a `Partition` and return a new value. A stream without an ETag is *transient*: not written
    yet. For a deleted stream, methods that read the header raise `StreamDeletedError`, and methods that only
    write raise `ConcurrencyConflictError`.

    To restore a stream from values kept elsewhere, construct it from partition, ETag and version. The stored properties
    then stay until a call gives new ones, which replace all of them. Without `first_version`, such a call or `truncate`
    costs one more request.
    """

    __slots__ = ()

    @classmethod
    async def provision(
        cls,
        partition: Partition,
        properties: Mapping[str, Value | None] | None = None,
        includes: Iterable[Include] = (),
    ) -> Stream:
        """Create a stream without events, in one request. Raises `ConcurrencyConflictError` if the stream exists."""
        return await writing.set_properties(cls(partition), stream_properties(properties or {}), includes)

    @classmethod
    async def open(cls, partition: Partition) -> Stream:
        """Read the header of a stream. Costs one request. Raises `StreamNotFoundError` if the stream does not exist."""
        return _found(await cls.try_open(partition), partition)

    @classmethod
    async def try_open(cls, partition: Partition) -> Stream | None:
        """Read the header of a stream. Return None if the stream does not exist. Costs one request."""
        return await reading.read_header(cls(partition))

    @classmethod
    async def try_open_with(
        cls, partition: Partition, last: str, *, select: Sequence[str], header: Sequence[str]
    ) -> tuple[Stream, tuple[Row, ...]] | None:
        """Read the header and the rows that sort after it, up to the row key `last`. Return None if there is no stream.

        A `last` that sorts before `SS-SE-` excludes events. `header` names the stream properties to read, and `select`
        those of the rows. Costs one request per 1,000 rows, and one more if there are several pages. Raises
        `ConcurrencyConflictError` if the stream changed during every attempt.
        """
        return await reading.Reader(cls(partition), reading.Selection.of(select, header)).with_rows(last)

    @classmethod
    async def exists(cls, partition: Partition) -> bool:
        """Return whether the stream exists and was not deleted. Costs one request."""
        rows = await reading.read_rows(partition, partition.header, partition.header, HEADER_NAMES)
        return any(map(is_header, rows))

    @classmethod
    async def write(
        cls,
        target: Stream | Partition,
        *events: EventData,
        expected_version: int | writing.ExpectedVersion | None = None,
        properties: Mapping[str, Value | None] | None = None,
        includes: Iterable[Include] = (),
        idempotent: bool = False,
    ) -> reading.StreamWriteResult[Stream]:
        """Append events in one transaction with their includes and, if given, new stream properties.

        `target` is a stream, or a partition together with `expected_version`, 0 if the stream does not exist. Costs one
        request, and one more for a partition unless 0 or `NO_STREAM` is expected. Each conflict with
        `ExpectedVersion.ANY` or `EXISTS` costs two more.

        A write with `idempotent=True` may be repeated: if its events are already stored at these versions, byte for
        byte, they are the result. All events need ids. The stored events are read only after a conflict or an unknown
        outcome, which costs two requests and one more per event. Included rows are not compared.

        An error means that nothing was written, except a `StoreUnavailableError` with `outcome_unknown`. Raises, in
        this order, `PayloadTooLargeError` before any I/O, `ConcurrencyConflictError` for an unexpected version,
        `DuplicateEventError` for an id in use, and `IncludeConflictError` for an included row.
        """
        stream, expected = _position(target, expected_version)
        write = writing.append_once if idempotent else writing.append
        return await write(writing.Draft.of(events, includes, properties), stream, expected)

    @classmethod
    async def set_properties(
        cls, stream: Stream, properties: Mapping[str, Value | None], includes: Iterable[Include] = ()
    ) -> Stream:
        """Replace all properties of a stream, and apply `includes` in the same transaction. Costs one request.

        Raises `ConcurrencyConflictError` if the stream has changed, and `ValueError` for a transient stream.
        """
        if stream.etag is None:
            raise ValueError("The stream is transient: provision or write it first.")
        own = stream_properties(properties)
        return await writing.set_properties(await reading.with_watermark(stream), own, includes)

    @classmethod
    async def read(
        cls,
        partition: Partition,
        start_version: int = 1,
        slice_size: int | None = None,
        *,
        select: Sequence[str] | None = None,
        header: Sequence[str] | None = None,
        ids: bool = False,
    ) -> reading.StreamSlice[Stream]:
        """Read header and events as `try_read` does, but raise `StreamNotFoundError` if the stream does not exist."""
        slice_ = await cls.try_read(
            partition, start_version, slice_size, select=select, header=header, ids=ids
        )
        return _found(slice_, partition)

    @classmethod
    async def try_read(
        cls,
        partition: Partition,
        start_version: int = 1,
        slice_size: int | None = None,
        *,
        select: Sequence[str] | None = None,
        header: Sequence[str] | None = None,
        ids: bool = False,
    ) -> reading.StreamSlice[Stream] | None:
        """Read the header of a stream, and its events from `start_version` onwards. Return None if there is no stream.

        `slice_size` limits the number of events. `select` names the event properties to read, and `header` those of the
        stream. If only `select` is given, no stream properties are read. Truncated events, and events appended during
        the read, are not returned. `ids=True` also reads the ids of the events, at one request per 1,000 ids of the
        stream.

        Costs one request per 1,000 rows, and one more unless `start_version` is 1. Raises `ConcurrencyConflictError`
        if the stream was truncated during every attempt.
        """
        reader = reading.Reader(cls(partition), reading.Selection.of(select, header), ids)
        return await reader.forwards(start_version, slice_size)

    @classmethod
    async def read_backwards(
        cls,
        partition: Partition,
        start_version: int | None = None,
        slice_size: int | None = None,
        *,
        select: Sequence[str] | None = None,
        header: Sequence[str] | None = None,
        ids: bool = False,
    ) -> reading.StreamSlice[Stream]:
        """Read header and events newest first, from a version or, by default, from the newest one.

        Costs two requests, and one more for each further 1,000 events. The other arguments and the errors are those of
        `read`.
        """
        reader = reading.Reader(cls(partition), reading.Selection.of(select, header), ids)
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
    ) -> reading.StreamSlice[Stream]:
        """Read header and the last `count` events, oldest first. Costs and raises as `read_backwards` does."""
        newest_first = await cls.read_backwards(partition, None, count, select=select, header=header, ids=ids)
        return reading.StreamSlice(newest_first.stream, newest_first.events[::-1], is_end_of_stream=True)

    @classmethod
    async def iterate(
        cls, partition: Partition, start_version: int = 1, *, select: Sequence[str] | None = None
    ) -> AsyncIterator[RecordedEvent]:
        """Yield the events from a version to the newest event at the time of the call, holding one page at a time.

        Costs one request per 1,000 events, and one more unless `start_version` is 1. Raises `StreamNotFoundError` if
        the stream does not exist, and `StreamTruncatedError` if the next events are truncated during the iteration.
        """
        reader = reading.Reader(cls(partition), reading.Selection.of(select, None))
        async for event in reader.one_by_one(start_version):
            yield event

    @classmethod
    async def read_events(
        cls, stream: Stream, first: int, last: int, *, select: Sequence[str] | None = None
    ) -> tuple[RecordedEvent, ...]:
        """Read the events `first` to `last`, inclusive, without reading the header of the stream.

        Costs one request per 1,000 events. Raises `StreamTruncatedError` if one of the events was truncated.
        """
        if not 1 <= first <= last <= stream.version:
            raise ValueError(f"Events {first} to {last} do not exist: the stream has {stream.version}.")
        return await reading.Reader(stream, reading.Selection.of(select, None)).events(stream, first, last)

    @classmethod
    async def truncate(
        cls,
        stream: Stream,
        first_version: int,
        properties: Mapping[str, Value | None] | None = None,
        includes: Iterable[Include] = (),
        rows: writing.CutRows | None = None,
    ) -> Stream:
        """Delete all events before `first_version`, and replace the stream's properties if given.

        The first transaction moves the low watermark and applies the `includes`, so a crash leaves a readable stream.
        Calling `truncate` again then deletes the remaining events. Ids of deleted events can be used again. Costs one
        request per 99 rows, and two more unless `rows` is given, the result of `eventstore.writing.rows_to_cut`.

        Raises `ConcurrencyConflictError` if the stream has changed.
        """
        own = None if properties is None else stream_properties(properties)
        return await writing.truncate(stream, first_version, own, writing.all_includes((), includes), rows)

    @classmethod
    async def delete(cls, target: Stream | Partition) -> None:
        """Delete a stream: its events, their ids and its properties. Included rows stay.

        The header becomes a tombstone: no stream can be created in the partition again, and writers of the stream get
        a conflict. If `target` is a partition, its current stream is deleted, or an interrupted deletion is completed.
        Costs two requests, one more per 99 rows, and one more for a partition. Raises `ConcurrencyConflictError` if
        the stream has changed, and `StreamNotFoundError` if there is no stream.
        """
        if isinstance(target, Stream) and target.etag is None:
            raise ValueError("The stream is transient: there is nothing to delete.")
        await writing.delete(target if isinstance(target, Stream) else cls(target))


def _found(value: T | None, partition: Partition) -> T:
    if value is None:
        raise StreamNotFoundError(str(partition))
    return value


def _position(
    target: Stream | Partition, expected_version: int | writing.ExpectedVersion | None
) -> tuple[Stream, int | writing.ExpectedVersion | None]:
    if isinstance(target, Stream):
        if expected_version is not None:
            raise ValueError("expected_version is for a partition; a Stream has its version.")
        return target, None
    if not isinstance(target, Partition):
        raise TypeError(f"write() takes a Stream or a Partition, not a {type(target).__name__}.")
    if expected_version is None:
        raise ValueError("A write to a partition needs expected_version; 0 if the stream does not exist.")
    if not isinstance(expected_version, int | writing.ExpectedVersion):
        raise TypeError(f"The expected version is {expected_version!r}: use a number or an ExpectedVersion.")
    if isinstance(expected_version, int) and expected_version < 0:
        raise ValueError(f"The expected version is {expected_version}; versions count from 1.")
    return Stream(target), expected_version


_SAMPLES_OF_A_PART = 64
_MOST_SAMPLES = 8192


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The partition keys that begin with `prefix`, from `first`, inclusive, to `before`, exclusive (None: no bound)."""

    prefix: str = ""
    first: str = ""
    before: str | None = None


async def list_streams(
    table: Table, keys: KeyRange | str = "", *, header: Sequence[str] | None = None
) -> AsyncIterator[Stream]:
    """Yield the streams of a table within a range or with a prefix, ordered by key. Cosmos DB guarantees no order.

    `header` names the stream properties to read, None for all. Deleted streams and streams of virtual partitions are
    omitted. A stream that is created or deleted meanwhile may be missing. Costs one request per 1,000 streams.
    """
    selection = reading.EVERYTHING if header is None else reading.Selection.of((), header)
    keys = KeyRange(keys) if isinstance(keys, str) else keys
    async for row in read_headers(table, keys, selection.query):
        if is_header(row):
            yield reading.stream_read(Stream(Partition.exact(table, row.partition_key)), row, selection)


async def split_streams(table: Table, parts: int, prefix: str = "") -> list[KeyRange]:
    """Return at most `parts` ranges that divide the streams with a prefix about evenly.

    Costs one request per 1,000 streams.
    """
    return await split_keys(_stream_keys(table, prefix), parts, prefix)


async def split_keys(keys: AsyncIterable[str], parts: int, prefix: str = "") -> list[KeyRange]:
    """Return at most `parts` ranges that divide partition keys about evenly. The keys need not be sorted.

    Keeps at most 64 keys per range in memory.
    """
    if parts < 1:
        raise ValueError(f"Streams are split into at least one range, not into {parts}.")
    _, sample = await _sample(keys, parts * _SAMPLES_OF_A_PART)
    return _ranges(sample, parts, prefix)


async def count_and_split(table: Table, parts: int, most: int) -> tuple[int, list[KeyRange]]:
    """Return the number of streams, and ranges of about `most` streams each.

    There are at least `parts` ranges if there are enough streams, and at most a few thousand.
    """
    limit = max(parts * _SAMPLES_OF_A_PART, _MOST_SAMPLES)
    count, sample = await _sample(_stream_keys(table, ""), limit)
    return count, _ranges(sample, min(max(parts, -(-count // most)), limit // 2), "")


async def _stream_keys(table: Table, prefix: str) -> AsyncIterator[str]:
    async for row in read_headers(table, KeyRange(prefix), HEADER_NAMES):
        if is_header(row):
            yield row.partition_key


async def _sample(keys: AsyncIterable[str], limit: int) -> tuple[int, list[str]]:
    """Return the number of keys and an evenly spaced sample of at most `limit` keys. `limit` must be even."""
    sample: list[str] = []
    count, stride = 0, 1
    async for key in keys:
        if len(sample) == limit:
            # Keep every second key, and from now on half as many.
            sample = sample[::2]
            stride *= 2
        if count % stride == 0:
            sample.append(key)
        count += 1
    return count, sample


def _ranges(sample: list[str], parts: int, prefix: str) -> list[KeyRange]:
    # Range queries are reliable for ASCII keys only, and Cosmos DB returns keys in any order.
    keys = sorted((key for key in sample if key.isascii()), key=escape)
    positions = {number * len(keys) // parts for number in range(1, parts)} - {0}
    bounds = [keys[position] for position in sorted(positions)]
    pairs = zip(["", *bounds], [*bounds, None], strict=True)
    return [KeyRange(prefix, first, before) for first, before in pairs]


def read_headers(
    table: Table, keys: KeyRange, select: Sequence[str] | None, substitute: Substitute | None = None
) -> AsyncIterator[Row]:
    """Yield the header rows in a range, tombstones included. Arguments and costs are as for `read_range`."""
    return read_range(table, HEADER, keys, select, substitute)


async def read_range(
    table: Table,
    row_key: str | None,
    keys: KeyRange,
    select: Sequence[str] | None = None,
    substitute: Substitute | None = None,
) -> AsyncIterator[Row]:
    """Yield the rows with a row key (None: all rows) in a range of partitions. `substitute` is as for `pages`.

    Costs one request per 1,000 rows.
    """
    first = keys.first or keys.prefix
    last = _bound_after(keys.prefix) if keys.before is None else keys.before
    async for page in pages(partial(table.scan, row_key, first, last, select=select), substitute):
        for row in page.rows:
            key = row.partition_key
            if key.startswith(keys.prefix) and key != keys.before:
                yield row


def _bound_after(prefix: str) -> str | None:
    # Replaces the last character that has a successor, and drops those after it.
    for end in range(len(prefix), 0, -1):
        position = PLAIN_CHARACTERS.find(prefix[end - 1])
        if 0 <= position < len(PLAIN_CHARACTERS) - 1:
            return prefix[: end - 1] + PLAIN_CHARACTERS[position + 1]
    return None
