"""A stream of events: one header row and one row for each event, all in one partition.

Every change of a stream is one transaction that begins with its header, under the header's ETag: of two
writers that hold the same stream value one succeeds, and the other gets a `ConcurrencyConflictError`.
After any conflict, and after a `StoreUnavailableError` whose outcome is unknown, read the stream again.
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
        return await writing.set_properties(cls(partition), stream_properties(properties or {}), includes)

    @classmethod
    async def open(cls, partition: Partition) -> Stream:
        """Read the header of a stream. One request.

        Raises `StreamNotFoundError`.
        """
        return _found(await cls.try_open(partition), partition)

    @classmethod
    async def try_open(cls, partition: Partition) -> Stream | None:
        """Read the header of a stream, None when there is no stream. One request."""
        return await reading.read_header(cls(partition))

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
        return await reading.Reader(cls(partition), reading.Selection.of(select, header)).with_rows(last)

    @classmethod
    async def exists(cls, partition: Partition) -> bool:
        """Return whether there is a stream, and it was not deleted. One request."""
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
        """Append events, in one transaction with their includes and, if given, new stream properties.

        `target` is a stream value, or a partition with the version that its stream is expected to have; 0
        means that it must not exist. One request; a partition with another expectation than 0 costs one more, and
        with `ExpectedVersion.ANY` or `EXISTS` two more for each conflict.

        An `idempotent` write may be repeated: if the same events, all of them with ids, stand already in the versions
        where they would be written, to the byte, they are the result. It needs to look only when the write was refused
        or its answer was lost: two requests and one for each event. The events of a stream are compared, not what
        was written with them.

        Raises `ConcurrencyConflictError` when the stream is not the one expected, else
        `DuplicateEventError` when an event's id is known, else `IncludeConflictError`;
        `PayloadTooLargeError` before any I/O. Nothing is written then.
        """
        stream, expected = _position(target, expected_version)
        write = writing.append_once if idempotent else writing.append
        return await write(writing.Draft.of(events, includes, properties), stream, expected)

    @classmethod
    async def write_in_parts(
        cls,
        target: Stream | Partition,
        events: Iterable[EventData],
        *,
        expected_version: int | writing.ExpectedVersion | None = None,
        properties: Mapping[str, Value | None] | None = None,
        idempotent: bool = False,
    ) -> reading.StreamWriteResult[Stream]:
        """Append events that may be too many for one transaction, in few of them.

        Each part is atomic, all together are not. The last one sets the properties, if they are given. Every part is
        checked before the first is sent. One request for each part, and those of `write` for the first.

        Raises what `write` raises when nothing is stored, and `PartialWriteError`, which says how many events are, when
        something is or may be. An `idempotent` write that is repeated after that continues where it stopped.
        """
        stream, expected = _position(target, expected_version)
        own = None if properties is None else stream_properties(properties)
        return await writing.append_in_parts(tuple(events), stream, expected, own, idempotent=idempotent)

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
        slice_size: int | None = None,
        *,
        select: Sequence[str] | None = None,
        header: Sequence[str] | None = None,
        ids: bool = False,
    ) -> reading.StreamSlice[Stream] | None:
        """Read a stream's header and its events from a version on, None when there is no stream.

        `slice_size` limits how many events are read: all by default. `select` names the event properties to
        read and `header` the stream's own ones; with `select` alone none of the stream's own are read.
        Events below the low watermark are not there. With `ids` the events have their ids, which are in rows of their
        own: one more request for each 1,000 ids of the stream.

        From version 1 on it takes one request for each 1,000 rows, from a later version on one more. Events that are
        appended meanwhile are not given. Raises `ConcurrencyConflictError` when events were cut away meanwhile each
        time that it was read.
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
        """Read a stream's header and its events from a version down, None for the newest; the newest comes first.

        Two requests, and one more for each further 1,000 events. Raises `StreamNotFoundError`; otherwise like
        `try_read`.
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
        """Read a stream's header and its last events, the oldest of them first. Like `read_backwards`."""
        found = await cls.read_backwards(partition, None, count, select=select, header=header, ids=ids)
        return reading.StreamSlice(found.stream, found.events[::-1], is_end_of_stream=True)

    @classmethod
    async def iterate(
        cls, partition: Partition, start_version: int = 1, *, select: Sequence[str] | None = None
    ) -> AsyncIterator[RecordedEvent]:
        """Yield the events of a stream one by one, up to the version that it has at the beginning.

        Holds a page of them at a time. One request for each 1,000 events; from a later version than 1 on, one more.
        Raises `StreamNotFoundError`, and `StreamTruncatedError` when events are cut away that would come next.
        """
        reader = reading.Reader(cls(partition), reading.Selection.of(select, None))
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
        """Cut away all events before `first_version`, and if given replace the stream's properties.

        The first transaction moves the low watermark, and only then, or with it, events are deleted: after a
        crash they count as cut, and truncating again deletes what is left of them. Two requests and one more
        for each 99 rows. Ids of cut events are forgotten. `includes` are changed with the first transaction.
        `rows`, if `eventstore.writing.rows_to_cut` has read them, save the two requests.

        Raises `ConcurrencyConflictError` when the stream was changed before or meanwhile.
        """
        own = None if properties is None else stream_properties(properties)
        return await writing.truncate(stream, first_version, own, writing.all_includes((), includes), rows)

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
        await writing.delete(target if isinstance(target, Stream) else cls(target))


def _found(value: T | None, partition: Partition) -> T:
    if value is None:
        raise StreamNotFoundError(str(partition))
    return value


def _position(
    target: Stream | Partition, expected_version: int | writing.ExpectedVersion | None
) -> tuple[Stream, int | writing.ExpectedVersion | None]:
    """Return where a write goes, and what is expected to be there; None for a stream value."""
    if isinstance(target, Stream):
        if expected_version is not None:
            raise ValueError("A stream value has its version; an expected version goes with a partition.")
        return target, None
    if not isinstance(target, Partition):
        raise TypeError(f"A write goes to a Stream or a Partition, not to a {type(target).__name__}.")
    if expected_version is None:
        raise ValueError("A write to a partition needs the expected version; 0 when there is no stream yet.")
    if not isinstance(expected_version, int | writing.ExpectedVersion):
        raise TypeError(f"The expected version is {expected_version!r}: give a number or an ExpectedVersion.")
    if isinstance(expected_version, int) and expected_version < 0:
        raise ValueError(f"The expected version is {expected_version}; versions count from 1.")
    return Stream(target), expected_version


_SAMPLES_OF_A_PART = 64
_MOST_SAMPLES = 8192


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The partition keys that begin with `prefix`, from `first` on and before `before`; "" and None leave an end open.

    Of the ranges that `split_streams` gives, each key with the prefix is in exactly one, also a key that is new.
    """

    prefix: str = ""
    first: str = ""
    before: str | None = None


async def list_streams(
    table: Table, keys: KeyRange | str = "", *, header: Sequence[str] | None = None
) -> AsyncIterator[Stream]:
    """Yield the streams of a table, those of a range or with a prefix, in the order of their keys.

    Cosmos DB gives them in any order. `header` names the stream properties to read, None for all. Deleted streams are
    left out, and streams of virtual partitions, which have no row that could be asked for by one row key; one that is
    made or deleted meanwhile is listed or not. One request for each 1,000 streams.
    """
    selection = reading.EVERYTHING if header is None else reading.Selection.of((), header)
    keys = KeyRange(keys) if isinstance(keys, str) else keys
    async for row in read_headers(table, keys, selection.query):
        if is_header(row):
            yield reading.stream_read(Stream(Partition.exact(table, row.partition_key)), row, selection)


async def split_streams(table: Table, parts: int, prefix: str = "") -> list[KeyRange]:
    """Split the streams with a prefix into at most so many ranges, about equal in number, to be listed apart.

    Reads all keys with that prefix, and no properties: one request for each 1,000 streams.
    """
    return await split_keys(_stream_keys(table, prefix), parts, prefix)


async def split_keys(keys: AsyncIterable[str], parts: int, prefix: str = "") -> list[KeyRange]:
    """Split partition keys with a prefix, in any order, into at most so many ranges, about equal in number.

    Holds a sample of the keys: 64 for each range.
    """
    if parts < 1:
        raise ValueError(f"Streams are split into at least one range, not into {parts}.")
    _, sample = await _sample(keys, parts * _SAMPLES_OF_A_PART)
    return _ranges(sample, parts, prefix)


async def count_and_split(table: Table, parts: int, most: int) -> tuple[int, list[KeyRange]]:
    """Return how many streams a table has, and ranges of about `most` of them, or `parts` if those are more.

    Of a table with very many streams, ranges have more of them: there are a few thousand ranges. The price is that of
    `split_streams`.
    """
    limit = max(parts * _SAMPLES_OF_A_PART, _MOST_SAMPLES)
    count, sample = await _sample(_stream_keys(table, ""), limit)
    return count, _ranges(sample, min(max(parts, -(-count // most)), limit // 2), "")


async def _stream_keys(table: Table, prefix: str) -> AsyncIterator[str]:
    async for row in read_headers(table, KeyRange(prefix), HEADER_NAMES):
        if is_header(row):
            yield row.partition_key


async def _sample(keys: AsyncIterable[str], limit: int) -> tuple[int, list[str]]:
    """Return the number of keys, and every first, second, fourth ... of them: up to an even limit of them."""
    sample: list[str] = []
    count, stride = 0, 1
    async for key in keys:
        if len(sample) == limit:
            sample = sample[::2]
            stride *= 2
        if count % stride == 0:
            sample.append(key)
        count += 1
    return count, sample


def _ranges(sample: list[str], parts: int, prefix: str) -> list[KeyRange]:
    """Return at most so many ranges, each with about as many of the keys."""
    # Ranges are promised for ASCII keys only, and Cosmos DB gives keys in any order.
    keys = sorted((key for key in sample if key.isascii()), key=escape)
    places = {number * len(keys) // parts for number in range(1, parts)} - {0}
    bounds = [keys[place] for place in sorted(places)]
    pairs = zip(["", *bounds], [*bounds, None], strict=True)
    return [KeyRange(prefix, first, before) for first, before in pairs]


def read_headers(
    table: Table, keys: KeyRange, select: Sequence[str] | None, substitute: Substitute | None = None
) -> AsyncIterator[Row]:
    """Yield the rows with the key of a header, those of deleted streams among them. One request for each 1,000."""
    return read_range(table, HEADER, keys, select, substitute)


async def read_range(
    table: Table,
    row_key: str | None,
    keys: KeyRange,
    select: Sequence[str] | None = None,
    substitute: Substitute | None = None,
) -> AsyncIterator[Row]:
    """Yield the rows with this row key in a range of partitions, with None all rows. One request for each 1,000."""
    first = keys.first or keys.prefix
    last = _bound_after(keys.prefix) if keys.before is None else keys.before
    async for page in pages(partial(table.scan, row_key, first, last, select=select), substitute):
        for row in page.rows:
            key = row.partition_key
            if key.startswith(keys.prefix) and key != keys.before:
                yield row


def _bound_after(prefix: str) -> str | None:
    """Return a key after all those with a prefix, whatever they hold behind it; None for the end of all keys."""
    for end in range(len(prefix), 0, -1):
        place = PLAIN_CHARACTERS.find(prefix[end - 1])
        if 0 <= place < len(PLAIN_CHARACTERS) - 1:
            return prefix[: end - 1] + PLAIN_CHARACTERS[place + 1]
    return None
