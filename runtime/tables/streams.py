"""Reading the streams of a table, run after run: in ranges of keys, by pages, with memory that does not grow.

A stream whose runs were cut while it was read, or that was changed between two pages, is read again as a whole from
where it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from eventstore import KeyRange, Partition, Properties, RecordedEvent, Row, Stream, Table, pages
from eventstore.header import HEADER_NAMES, is_header, versions_of
from eventstore.listing import read_headers, read_range
from eventstore.partition import EVENT, HEADER
from runtime.errors import StoredDataError
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.storage.head import HEAD_PROPERTIES, Head, read_head
from runtime.storage.listing import is_state_stream
from runtime.storage.run import DATA_PROPERTIES, ID_PROPERTIES, INDEX_PROPERTIES, Run, read_run

RUN = [*INDEX_PROPERTIES, *ID_PROPERTIES, *DATA_PROPERTIES]
"""The properties of a run."""

_LAST = EVENT + "~"
_READ_ONE_BY_ONE = 16
"""Up to so many streams of a page are read by a request each; more of them with all that stands between them."""


class StreamHead(NamedTuple):
    """The header of a state stream, with the event of its newest run, 0 when it has none."""

    key: str
    head: Head
    newest_event: int

    @property
    def handler(self) -> str:
        """The handler of the stream."""
        return self.key.partition("-")[0]

    @property
    def business_id(self) -> str:
        """The business id of the stream."""
        return self.key.partition("-")[2]


class Part(NamedTuple):
    """Consecutive versions of a stream: those of the run in an event, or without one those of the tail."""

    stream: StreamHead
    event: RecordedEvent | None


def is_stream(row: Row) -> bool:
    """Say whether a row is the header of a state stream."""
    return "-" in row.partition_key and "StateVersions" in row.properties and is_header(row)


def head_of(row: Row) -> StreamHead:
    """Return what a header says. Raises `StoredDataError`, which names the stream."""
    return _head(row.partition_key, row.properties, *versions_of(row))


def head_of_stream(stream: Stream) -> StreamHead:
    """Return what the header of a stream says that was read. Raises `StoredDataError`, which names the stream."""
    return _head(stream.partition.key, stream.properties or {}, stream.version, stream.first_version)


def _head(key: str, properties: Properties, version: int, first: int) -> StreamHead:
    try:
        return StreamHead(key, read_head(properties), version if version >= first else 0)
    except StoredDataError as error:
        raise error.at(stream=key) from error


async def heads(table: Table, keys: KeyRange) -> AsyncIterator[StreamHead]:
    """Give the headers of the streams in a range. One request for each 1,000."""
    async for row in read_headers(table, keys, [*HEADER_NAMES, *HEAD_PROPERTIES]):
        if is_stream(row):
            yield head_of(row)


async def head_at(table: Table, key: str) -> StreamHead | None:
    """Return the header of one stream, None when there is no stream. One request."""
    row = await table.get(key, HEADER)
    return head_of(row) if row is not None and is_stream(row) else None


async def parts_in(table: Table, keys: KeyRange, select: Sequence[str]) -> AsyncIterator[Part]:
    """Give all versions of the streams in a range: one request for each 1,000 rows, or for each 4 MiB."""
    async for part in _parts(table, read_range(table, None, keys, _query(select)), select):
        yield part


async def parts_of(table: Table, keys: Sequence[str], select: Sequence[str]) -> AsyncIterator[Part]:
    """Give all versions of some streams, whose keys are in their order.

    Costs a request for each stream, or, of many, what it costs to read all from the first to the last of them.
    """
    if len(keys) > _READ_ONE_BY_ONE:
        wanted = frozenset(keys)
        rows = read_range(table, None, KeyRange("", keys[0], f"{keys[-1]}!"), _query(select))
        async for part in _parts(table, (row async for row in rows if row.partition_key in wanted), select):
            yield part
        return
    for key in keys:
        async for part in _parts(table, _rows_of(table, key, select), select):
            yield part


async def _rows_of(table: Table, key: str, select: Sequence[str]) -> AsyncIterator[Row]:
    async for page in pages(partial(table.query, key, HEADER, _LAST, select=_query(select))):
        for row in page.rows:
            yield row


def _query(select: Sequence[str]) -> list[str]:
    """Return what is read of headers and events: the newest state is in the runs and the tail too."""
    header = [name for name in HEAD_PROPERTIES if name != "State"]
    return list(dict.fromkeys([*HEADER_NAMES, *header, *select]))


async def _parts(table: Table, rows: AsyncIterator[Row], select: Sequence[str]) -> AsyncIterator[Part]:
    """Give the parts of the streams to which rows belong. The rows of a partition come in their order."""
    reading: _Reading | None = None
    async for row in rows:
        if reading is not None and row.partition_key == reading.stream.key:
            event = reading.take(row)
            if event is not None:
                yield Part(reading.stream, event)
            continue
        if reading is not None:
            async for part in _end(table, reading, select):
                yield part
        reading = _Reading.of(row) if row.row_key == HEADER and is_stream(row) else None
    if reading is not None:
        async for part in _end(table, reading, select):
            yield part


@dataclass(slots=True)
class _Reading:
    """A stream whose rows are coming: `next_event` is the one that must come next, up to `last_event`."""

    stream: StreamHead
    next_event: int
    last_event: int

    @classmethod
    def of(cls, header: Row) -> _Reading:
        version, first = versions_of(header)
        return cls(_head(header.partition_key, header.properties, version, first), first, version)

    @property
    def is_whole(self) -> bool:
        return self.next_event > self.last_event

    def take(self, row: Row) -> RecordedEvent | None:
        """Return the event in a row when it is the one that must come next."""
        if not row.row_key.startswith(EVENT) or int(row.row_key.removeprefix(EVENT)) != self.next_event:
            return None
        if self.is_whole:
            return None  # appended after the header was read, whose tail holds the same versions
        self.next_event += 1
        return RecordedEvent(self.next_event - 1, row.properties)


async def _end(table: Table, reading: _Reading, select: Sequence[str]) -> AsyncIterator[Part]:
    """Give what is left of a stream when its rows have come: the tail, or what was not there."""
    if reading.is_whole:
        if reading.stream.head.tail is not None:
            yield Part(reading.stream, None)
        return
    found = await until_undisturbed(
        RetryPolicy().beside(table), partial(_rest, table, reading.stream.key, reading.next_event, select)
    )
    for part in found:
        yield part


async def _rest(table: Table, key: str, first: int, select: Sequence[str]) -> list[Part]:
    """Return the parts of a stream from an event on, as they are now."""
    found = await Stream.try_read(
        Partition.exact(table, key), first, None, select=select, header=HEAD_PROPERTIES
    )
    if found is None or not is_state_stream(found.stream):
        return []
    stream = head_of_stream(found.stream)
    parts = [Part(stream, event) for event in found.events]
    return parts if stream.head.tail is None else [*parts, Part(stream, None)]


def run_of(stream: StreamHead, event: RecordedEvent | None) -> Run:
    """Return the versions in an event, or those of the tail. Raises `StoredDataError`, which names the stream."""
    try:
        if event is not None:
            return read_run(event)
        if stream.head.tail is not None:
            return stream.head.tail.run()
    except StoredDataError as error:
        raise error.at(stream=stream.key) from error
    raise AssertionError("A part without an event is the tail.")
