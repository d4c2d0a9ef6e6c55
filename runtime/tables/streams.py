"""Read the streams of a table in parts, in bounded memory."""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import pyarrow as pa

from eventstore import KeyRange, Partition, RecordedEvent, Row, Stream, Table, pages
from eventstore.header import EVENT, HEADER, HEADER_NAMES
from eventstore.stream import read_range
from runtime.errors import UsageError
from runtime.messages.envelope import IdKey, canonical
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.tables.columns import TEXT, TIME
from runtime.versions import run as runs
from runtime.versions.head import HEAD_PROPERTIES, is_of_state, read_head
from runtime.versions.properties import reading
from runtime.versions.readable import readable
from runtime.versions.run import INDEX_PROPERTIES, RUN_PROPERTIES, Commit, Run, RunIndex
from runtime.versions.stream import StreamHead, head_of, is_state_header, stream_heads, stream_key

_READ_ONE_BY_ONE = 16
"""A larger number of streams is read by one scan, from the first stream to the last."""


class Part:
    """Consecutive versions of a stream: the run in an event or, without an event, the tail. Decoded on demand."""

    def __init__(self, stream: StreamHead, event: RecordedEvent | None = None) -> None:
        self.stream = stream
        self._event = event

    @property
    def row_key(self) -> str:
        """The key of the row that stores the versions."""
        return HEADER if self._event is None else f"{EVENT}{self._event.version:010d}"

    @cached_property
    def _indexes(self) -> Sequence[RunIndex]:
        return self.stream.tail.indexes() if self._event is None else [runs.read_index(self._event)]

    @property
    def first(self) -> int:
        """The number of the first version."""
        return self._indexes[0].first

    @cached_property
    def count(self) -> int:
        """The number of versions in the part."""
        return sum(index.count for index in self._indexes)

    @cached_property
    def commits(self) -> Sequence[Commit]:
        """The commit of each version."""
        commits = (commit for index in self._indexes for commit in index.commits)
        return [commit for commit in commits for _ in range(commit.length)]

    @cached_property
    def ids(self) -> Sequence[IdKey]:
        """The id of the message that made each version."""
        if self._event is None:
            return self.stream.tail.ids()
        is_whole = runs.DATA_PROPERTIES[0] in self._event.properties
        return self.run.ids if is_whole else runs.read_ids(self._event)

    @cached_property
    def run(self) -> Run:
        """All versions of the part. Raises `StoredDataError` with the stream's name if a row is corrupt."""
        with reading("", stream=self.stream.key):
            return self.stream.tail.run() if self._event is None else runs.read_run(self._event)

    @cached_property
    def states(self) -> Sequence[bytes]:
        """The encoded states before the first version, and after each version."""
        return [*self.run.states_before(), self.run.after]


def parts_in(table: Table, keys: KeyRange, select: Sequence[str]) -> AsyncIterator[Part]:
    """Yield the parts of streams in a range, with properties `select`. A request reads up to 1,000 rows or 4 MiB."""
    return _parts(table, read_range(table, None, keys, _query(select)), select)


async def parts_of(table: Table, keys: Sequence[str], select: Sequence[str]) -> AsyncIterator[Part]:
    """Yield the parts of the streams with these keys, which must be sorted. The parts have the properties `select`.

    Up to 16 streams cost one request each. More are read by a scan from the first key to the last.
    """
    if len(keys) > _READ_ONE_BY_ONE:
        wanted = frozenset(keys)
        rows = read_range(table, None, KeyRange("", keys[0], f"{keys[-1]}!"), _query(select))
        async for part in _parts(table, (row async for row in rows if row.partition_key in wanted), select):
            yield part
        return
    for key in keys:
        of_key = pages(partial(table.query, key, HEADER, f"{EVENT}~", select=_query(select)))
        async for part in _parts(table, (row async for page in of_key for row in page.rows), select):
            yield part


def _query(select: Sequence[str]) -> list[str]:
    """Return the properties to read: `select` and those of headers. Omits the newest state, as parts contain it."""
    header = [name for name in HEAD_PROPERTIES if name != "State"]
    return list(dict.fromkeys([*HEADER_NAMES, *header, *select]))


async def _parts(table: Table, rows: AsyncIterator[Row], select: Sequence[str]) -> AsyncIterator[Part]:
    """Yield the parts of streams from their rows. The rows of each partition must be sorted."""
    current: StreamHead | None = None
    event = 0  # the next of `current`
    async for row in rows:
        if current is None or row.partition_key != current.key:
            for part in await _rest(table, current, event, select):
                yield part
            current = head_of(row) if row.row_key == HEADER and is_state_header(row) else None
            event = 0 if current is None else current.first_event
        # An event after the last one was appended later. The tail in the header has the same versions.
        elif event <= current.last_event and row.row_key == f"{EVENT}{event:010d}":
            yield Part(current, RecordedEvent(event, row.properties))
            event += 1
    for part in await _rest(table, current, event, select):
        yield part


async def _rest(table: Table, stream: StreamHead | None, event: int, select: Sequence[str]) -> list[Part]:
    """Return the rest of a stream as parts: any events from number `event` on, which are read here, then the tail."""
    if stream is None:
        return []
    events: Sequence[RecordedEvent] = ()
    if event <= stream.last_event:
        # The stream was truncated or changed between two pages.
        partition = Partition.exact(table, stream.key)
        read = partial(Stream.try_read, partition, event, None, select=select, header=HEAD_PROPERTIES)
        slice_ = await until_undisturbed(RetryPolicy().beside(table), read)
        if slice_ is None or not is_of_state(slice_.stream.properties or {}):
            return []
        stream, events = head_of_stream(slice_.stream), slice_.events
    parts = [Part(stream, event) for event in events]
    return parts if stream.head.tail is None else [*parts, Part(stream)]


def head_of_stream(stream: Stream) -> StreamHead:
    """Decode the header of a loaded stream. Raises `StoredDataError`, with the stream's name, if it is corrupt."""
    key = stream.partition.key
    with reading("", stream=key):
        return StreamHead(key, read_head(stream.properties or {}), stream.first_version, stream.version)


class Column(NamedTuple):
    """The Arrow type of a column of versions, and how its values are read from a part."""

    type: pa.DataType
    needs: Sequence[str]  # the properties of a run that `values` decodes
    values: Callable[[Part], Sequence[Any]]


_IDS = [*INDEX_PROPERTIES, *runs.ID_PROPERTIES]

COLUMNS = {
    "handler": Column(TEXT, INDEX_PROPERTIES, lambda part: [part.stream.handler] * part.count),
    "business_id": Column(TEXT, INDEX_PROPERTIES, lambda part: [part.stream.business_id] * part.count),
    "version": Column(pa.int64(), INDEX_PROPERTIES, lambda part: range(part.first, part.first + part.count)),
    "message_id": Column(TEXT, _IDS, lambda part: part.ids),
    "type": Column(TEXT, RUN_PROPERTIES, lambda part: part.run.versions.types),
    "now": Column(TIME, RUN_PROPERTIES, lambda part: part.run.versions.nows),
    "enqueued_at": Column(TIME, RUN_PROPERTIES, lambda part: part.run.versions.enqueued_at),
    "written_at": Column(TIME, INDEX_PROPERTIES, lambda part: [each.written_at for each in part.commits]),
    "batch": Column(TEXT, INDEX_PROPERTIES, lambda part: [each.batch for each in part.commits]),
    "batch_number": Column(pa.int64(), INDEX_PROPERTIES, lambda part: [each.number for each in part.commits]),
    "headers": Column(
        pa.map_(TEXT, TEXT), RUN_PROPERTIES, lambda part: _maps(part.run.versions.headers, str)
    ),
    "captured": Column(
        pa.map_(TEXT, TEXT), RUN_PROPERTIES, lambda part: _maps(part.run.versions.captured, _captured)
    ),
    "revision": Column(pa.int32(), RUN_PROPERTIES, lambda part: part.run.versions.revisions),
    "schema": Column(pa.int32(), RUN_PROPERTIES, lambda part: [part.run.schema] * part.count),
    "fingerprint": Column(pa.binary(), RUN_PROPERTIES, lambda part: part.run.versions.fingerprints),
    "outputs_digest": Column(pa.binary(), RUN_PROPERTIES, lambda part: part.run.versions.outputs_digests),
    "state_digest": Column(pa.binary(), RUN_PROPERTIES, lambda part: part.run.versions.state_digests),
    "changed": Column(
        pa.bool_(), RUN_PROPERTIES, lambda part: [after is not None for after in part.run.versions.afters]
    ),
    "before": Column(TEXT, RUN_PROPERTIES, lambda part: part.states[:-1]),
    "after": Column(TEXT, RUN_PROPERTIES, lambda part: part.states[1:]),
}
"""The columns of versions. States are encoded JSON, captured values are JSON text."""

STATES = {"before", "after"}  # the columns that have states


def _maps(values: Iterable[Any], read: Callable[[Any], str]) -> list[list[tuple[str, str]] | None]:
    return [
        None if each is None else [(name, read(value)) for name, value in each.items()] for each in values
    ]


def _captured(packed: bytes) -> str:
    return json.dumps(readable(packed), ensure_ascii=False)


ALL = KeyRange()


@dataclass(frozen=True, slots=True)
class StreamQuery:
    """A filter of rows, and the columns to read. Raises `UsageError` for an invalid handler."""

    handler: str | None = None
    business_id: str | None = None
    since: int | None = None  # inclusive, in microseconds since 1970 UTC
    until: int | None = None  # inclusive
    columns: Sequence[str] | None = None  # None: all

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            raise UsageError(f"`columns` must be a list of names, such as [{self.columns!r}].")
        if self.handler is not None:
            stream_key(self.handler)

    @property
    def keys(self) -> Sequence[str] | None:
        """The partition keys of one stream, by its id as given and in canonical form. None if many are selected."""
        if self.handler is None or self.business_id is None:
            return None
        spellings = dict.fromkeys([self.business_id, canonical(self.business_id)])
        return [stream_key(self.handler, spelling) for spelling in spellings]

    @property
    def prefix(self) -> str:
        """The common prefix of the keys of the selected streams."""
        return "" if self.handler is None else stream_key(self.handler)

    def within(self, keys: KeyRange) -> KeyRange:
        """Return the part of a range that contains the streams of the handler."""
        return replace(keys, prefix=self.prefix)

    def has(self, moment: int) -> bool:
        """Return whether a time, in microseconds since 1970 UTC, is in the range from `since` to `until`, inclusive."""
        return (self.since is None or moment >= self.since) and (self.until is None or moment <= self.until)


async def heads_of(table: Table, query: StreamQuery, keys: KeyRange = ALL) -> AsyncIterator[StreamHead]:
    """Yield the headers of the selected streams. Costs one request for every 1,000 streams."""
    if query.keys is None:
        async for stream in stream_heads(table, query.within(keys)):
            if query.business_id in {None, stream.business_id}:
                yield stream
        return
    for key in query.keys:
        header = await table.get(key, HEADER)
        if header is not None and is_state_header(header):
            yield head_of(header)
