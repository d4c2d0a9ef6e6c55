"""Reading the streams of a table, run after run: in ranges of keys, by pages, with memory that does not grow.

A stream whose runs were cut while it was read, or that was changed between two pages, is read again as a whole from
where it was.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import pyarrow as pa

from eventstore import KeyRange, Partition, Properties, RecordedEvent, Row, Stream, Table, pages
from eventstore.header import EVENT, HEADER, HEADER_NAMES, is_header, versions_of
from eventstore.stream import read_headers, read_range
from runtime.errors import UsageError
from runtime.messages.envelope import IdKey, canonical
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.tables.columns import TEXT, TIME, StateColumns
from runtime.versions import run as runs
from runtime.versions.head import HEAD_PROPERTIES, Head, read_head
from runtime.versions.properties import reading
from runtime.versions.readable import readable
from runtime.versions.run import DATA_PROPERTIES, ID_PROPERTIES, INDEX_PROPERTIES, Commit, Run, RunIndex
from runtime.versions.stream import is_state_stream, stream_key

RUN = [*INDEX_PROPERTIES, *ID_PROPERTIES, *DATA_PROPERTIES]  # the properties of a run

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
    """Return whether a row is the header of a state stream."""
    return "-" in row.partition_key and "StateVersions" in row.properties and is_header(row)


def head_of_stream(stream: Stream) -> StreamHead:
    """Return the head of a stream from its header. Raises `StoredDataError`, which names the stream."""
    return _head(stream.partition.key, stream.properties or {}, stream.version, stream.first_version)


def _head(key: str, properties: Properties, version: int, first: int) -> StreamHead:
    with reading("", stream=key):
        return StreamHead(key, read_head(properties), version if version >= first else 0)


def parts_in(table: Table, keys: KeyRange, select: Sequence[str]) -> AsyncIterator[Part]:
    """Yield all versions of the streams in a range: one request for each 1,000 rows, or for each 4 MiB."""
    return _parts(table, read_range(table, None, keys, _query(select)), select)


async def parts_of(table: Table, keys: Sequence[str], select: Sequence[str]) -> AsyncIterator[Part]:
    """Yield all versions of some streams, whose keys are in their order.

    Costs a request for each stream, or, of many, what it costs to read all from the first to the last of them.
    """
    if len(keys) > _READ_ONE_BY_ONE:
        asked = frozenset(keys)
        rows = read_range(table, None, KeyRange("", keys[0], f"{keys[-1]}!"), _query(select))
        async for part in _parts(table, (row async for row in rows if row.partition_key in asked), select):
            yield part
        return
    for key in keys:
        found = pages(partial(table.query, key, HEADER, f"{EVENT}~", select=_query(select)))
        async for part in _parts(table, (row async for page in found for row in page.rows), select):
            yield part


def _query(select: Sequence[str]) -> list[str]:
    """Return the properties to read, without the newest state, which runs and tail hold too."""
    header = [name for name in HEAD_PROPERTIES if name != "State"]
    return list(dict.fromkeys([*HEADER_NAMES, *header, *select]))


@dataclass(slots=True)
class _Reading:
    """A stream whose rows are coming: `next_event` is the one that must come next, up to `last_event`."""

    stream: StreamHead
    next_event: int
    last_event: int


async def _parts(table: Table, rows: AsyncIterator[Row], select: Sequence[str]) -> AsyncIterator[Part]:
    """Yield the parts of the streams to which rows belong. The rows of a partition come in their order."""
    current: _Reading | None = None
    async for row in rows:
        if current is None or row.partition_key != current.stream.key:
            if current is not None:
                for part in await _rest(table, current, select):
                    yield part
            current = None
            if row.row_key == HEADER and is_stream(row):
                version, first = versions_of(row)
                head = _head(row.partition_key, row.properties, version, first)
                current = _Reading(head, first, version)
        # One beyond the last was appended after the header was read, whose tail holds the same versions.
        elif current.next_event <= current.last_event and row.row_key == f"{EVENT}{current.next_event:010d}":
            yield Part(current.stream, RecordedEvent(current.next_event, row.properties))
            current.next_event += 1
    if current is not None:
        for part in await _rest(table, current, select):
            yield part


async def _rest(table: Table, reading: _Reading, select: Sequence[str]) -> list[Part]:
    """Return the missing parts of a stream at the end of its rows: the tail, and events that are read now."""
    stream = reading.stream
    events: Sequence[RecordedEvent] = ()
    if reading.next_event <= reading.last_event:
        partition = Partition.exact(table, stream.key)
        read = partial(
            Stream.try_read, partition, reading.next_event, None, select=select, header=HEAD_PROPERTIES
        )
        found = await until_undisturbed(RetryPolicy().beside(table), read)
        if found is None or not is_state_stream(found.stream):
            return []
        stream, events = head_of_stream(found.stream), found.events
    parts = [Part(stream, event) for event in events]
    return parts if stream.head.tail is None else [*parts, Part(stream, None)]


def run_of(stream: StreamHead, event: RecordedEvent | None) -> Run:
    """Return the versions in an event, or those of the tail. Raises `StoredDataError`, which names the stream."""
    with reading("", stream=stream.key):
        if event is not None:
            return runs.read_run(event)
        if stream.head.tail is not None:
            return stream.head.tail.run()
    raise AssertionError("A part without an event is the tail.")


# Versions column by column: each column of a run is decoded when it is asked for, and then once.

_IDS = [*INDEX_PROPERTIES, *ID_PROPERTIES]


class Decoded:
    """The versions of a run, or of the tail. Of one that is read `whole`, ids are not decoded apart from the rest."""

    def __init__(self, part: Part, model: StateColumns, *, whole: bool) -> None:
        self.stream, self._event = part
        self._model = model
        self._whole = whole

    @cached_property
    def _indexes(self) -> Sequence[RunIndex]:
        if self._event is not None:
            return [runs.read_index(self._event)]
        tail = self.stream.head.tail
        return [] if tail is None else tail.indexes()

    @property
    def first(self) -> int:
        """The number of the first version."""
        return self._indexes[0].first

    @cached_property
    def count(self) -> int:
        """How many versions there are."""
        return sum(index.count for index in self._indexes)

    @cached_property
    def commits(self) -> Sequence[Commit]:
        """The commit of each version."""
        commits = (commit for index in self._indexes for commit in index.commits)
        return [commit for commit in commits for _ in range(commit.length)]

    @cached_property
    def ids(self) -> Sequence[IdKey]:
        """The id of the message that made each version."""
        if self._whole:
            return self.run.ids
        if self._event is not None:
            return runs.read_ids(self._event)
        tail = self.stream.head.tail
        return [] if tail is None else tail.ids()

    @cached_property
    def run(self) -> Run:
        """All that is stored."""
        return run_of(self.stream, self._event)

    @cached_property
    def states(self) -> Sequence[Any]:
        """The state before the first version and that after each, as values of their columns."""
        return self.read([*self.run.states_before(), self.run.after])

    def read(self, encoded: Sequence[bytes]) -> Sequence[Any]:
        """Return encoded states as values of their columns."""
        return self._model.read(self.run.schema, encoded)


class Column(NamedTuple):
    """A column: its type, the properties of a run that hold it, and a function of its values."""

    type: pa.DataType
    needs: Sequence[str]
    values: Callable[[Decoded], Sequence[Any]]


COLUMNS = {
    "handler": Column(TEXT, INDEX_PROPERTIES, lambda some: [some.stream.handler] * some.count),
    "business_id": Column(TEXT, INDEX_PROPERTIES, lambda some: [some.stream.business_id] * some.count),
    "version": Column(pa.int64(), INDEX_PROPERTIES, lambda some: range(some.first, some.first + some.count)),
    "message_id": Column(TEXT, _IDS, lambda some: some.ids),
    "type": Column(TEXT, RUN, lambda some: some.run.versions.types),
    "now": Column(TIME, RUN, lambda some: some.run.versions.nows),
    "enqueued_at": Column(TIME, RUN, lambda some: some.run.versions.enqueued_at),
    "written_at": Column(TIME, INDEX_PROPERTIES, lambda some: [each.written_at for each in some.commits]),
    "batch": Column(TEXT, INDEX_PROPERTIES, lambda some: [each.batch for each in some.commits]),
    "batch_number": Column(pa.int64(), INDEX_PROPERTIES, lambda some: [each.number for each in some.commits]),
    "headers": Column(pa.map_(TEXT, TEXT), RUN, lambda some: _maps(some.run.versions.headers, str)),
    "captured": Column(pa.map_(TEXT, TEXT), RUN, lambda some: _maps(some.run.versions.captured, _captured)),
    "revision": Column(pa.int32(), RUN, lambda some: some.run.versions.revisions),
    "schema": Column(pa.int32(), RUN, lambda some: [some.run.schema] * some.count),
    "fingerprint": Column(pa.binary(), RUN, lambda some: some.run.versions.fingerprints),
    "outputs_digest": Column(pa.binary(), RUN, lambda some: some.run.versions.outputs_digests),
    "state_digest": Column(pa.binary(), RUN, lambda some: some.run.versions.state_digests),
    "changed": Column(
        pa.bool_(), RUN, lambda some: [after is not None for after in some.run.versions.afters]
    ),
    "before": Column(TEXT, RUN, lambda some: some.states[:-1]),
    "after": Column(TEXT, RUN, lambda some: some.states[1:]),
}
"""The columns of a version: those of an export, with states and captured values as JSON."""

STATES = {"before", "after"}


def _maps(values: Iterable[Any], read: Callable[[Any], str]) -> list[list[tuple[str, str]] | None]:
    return [
        None if each is None else [(name, read(value)) for name, value in each.items()] for each in values
    ]


def _captured(packed: bytes) -> str:
    return json.dumps(readable(packed), ensure_ascii=False)


# What is asked of a table: which streams, from which time, and which columns.

ALL = KeyRange()


@dataclass(frozen=True, slots=True)
class StreamQuery:
    """The rows and columns that are asked for: None stands for all. Raises `UsageError` for an invalid handler.

    `since` and `until` are inclusive, in microseconds since 1970 UTC, of a version or of the newest one.
    """

    handler: str | None = None
    business_id: str | None = None
    since: int | None = None
    until: int | None = None
    columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            raise UsageError(f"The columns are to be a list of names, such as [{self.columns!r}].")
        if self.handler is not None:
            stream_key(self.handler)

    @property
    def keys(self) -> Sequence[str] | None:
        """The partition keys of the one stream that is meant, by the spellings of its business id; None for many."""
        if self.handler is None or self.business_id is None:
            return None
        spellings = dict.fromkeys([self.business_id, canonical(self.business_id)])
        return [stream_key(self.handler, spelling) for spelling in spellings]

    @property
    def prefix(self) -> str:
        """What the keys of the streams begin with."""
        return "" if self.handler is None else stream_key(self.handler)

    def within(self, keys: KeyRange) -> KeyRange:
        """Return the part of a range in which the streams are."""
        return replace(keys, prefix=self.prefix)

    def has(self, moment: int) -> bool:
        """Return whether a time is between those that are asked for."""
        return (self.since is None or moment >= self.since) and (self.until is None or moment <= self.until)


async def heads_of(table: Table, query: StreamQuery, keys: KeyRange = ALL) -> AsyncIterator[StreamHead]:
    """Yield the headers of the streams that are asked for: one request for each 1,000, or one for a single stream."""
    if query.keys is None:
        async for row in read_headers(table, query.within(keys), [*HEADER_NAMES, *HEAD_PROPERTIES]):
            if is_stream(row):
                stream = _head(row.partition_key, row.properties, *versions_of(row))
                if query.business_id in {None, stream.business_id}:
                    yield stream
        return
    for key in query.keys:
        header = await table.get(key, HEADER)
        if header is not None and is_stream(header):
            yield _head(key, header.properties, *versions_of(header))
