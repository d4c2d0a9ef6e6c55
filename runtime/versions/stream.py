"""State streams: load the versions of some messages, and append new versions.

The partition key of a stream is `{Handler}-{business id}`. The newest versions are in the tail in the header. Older
versions are in runs, one event each, and their message ids are indexed. Loading costs one query, one more for each
contiguous range of runs with duplicates, and one for a newest state that does not fit the header. Appending costs one
transaction.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from eventstore import Include, KeyRange, Partition, Properties, RecordedEvent, Row, Stream, Table
from eventstore.errors import InvalidKeyError
from eventstore.header import HEADER, HEADER_NAMES, is_tombstone, versions_of
from eventstore.keys import escape
from eventstore.port import PAGE_SIZE
from eventstore.stream import read_headers
from handlers.app import HandlerDefinition
from handlers.message import NAME
from runtime.errors import StoredDataError, UsageError
from runtime.messages.envelope import IdKey
from runtime.versions import dead_letter_rows, index
from runtime.versions import run as stored_runs
from runtime.versions.dead_letter_rows import NO_LETTERS, Letter, Letters
from runtime.versions.head import HEAD_PROPERTIES, NO_EVENT, Head, NewestState, Tail, is_of_state, read_head
from runtime.versions.index import IndexRow, VersionPosition
from runtime.versions.packing import PackedRun, packed
from runtime.versions.properties import damaged_row, error_location, one_of_many, reading
from runtime.versions.run import Commit, Run, Version


class LoadedVersions:
    """Finds the versions of the messages `wanted`, in the tail and at the positions `candidates` from the index."""

    __slots__ = ("_decoded", "_events", "_places", "_tail")

    def __init__(
        self,
        tail: Tail | None = None,
        events: Iterable[RecordedEvent] = (),
        wanted: AbstractSet[IdKey] = frozenset(),
        candidates: Iterable[VersionPosition] = (),
    ) -> None:
        self._tail = tail
        self._events = {event.version: event for event in events}
        self._places: dict[IdKey, tuple[int, int]] = {}
        self._decoded: tuple[int, list[Version]] | None = None
        if tail is not None and not wanted.isdisjoint(ids_of_tail := tail.ids()):
            places = enumerate(ids_of_tail)
            self._places = {key: (NO_EVENT, position) for position, key in places if key in wanted}
        ids = {number: stored_runs.read_ids(event) for number, event in self._events.items()}
        for place in candidates:
            key = ids[place.event][place.position]
            if key in wanted:
                self._places[key] = place

    def __bool__(self) -> bool:
        return bool(self._places)

    def __contains__(self, message_id: IdKey) -> bool:
        return message_id in self._places

    def find(self, message_id: IdKey) -> Version | None:
        """Return the version that a message made, or `None` if it made none or its version was truncated."""
        place = self._places.get(message_id)
        if place is None:
            return None
        event, position = place
        if self._decoded is None or self._decoded[0] != event:
            tail = self._tail if event == NO_EVENT else None
            run = stored_runs.read_run(self._events[event]) if tail is None else tail.run()
            self._decoded = (event, run.all())
        return self._decoded[1][position]

    def event(self, number: int) -> RecordedEvent | None:
        return self._events.get(number)


class History(NamedTuple):
    """A stream as it was loaded, with the changes that were appended since."""

    stream: Stream  # the next append is conditional on its ETag
    head: Head  # as stored, in the recorded schema version
    index_rows: Sequence[IndexRow] = ()
    found: LoadedVersions = LoadedVersions()
    appended: Mapping[IdKey, Version] = MappingProxyType({})  # since the load, if copies of messages wait
    letters: Letters = NO_LETTERS
    newest: NewestState = NewestState()  # empty if the stream was loaded without its state

    def has(self, message_id: IdKey) -> bool:
        return message_id in self.appended or message_id in self.found

    def find(self, message_id: IdKey) -> Version | None:
        """Return the version that a message made, or `None` if it made none or its version was truncated."""
        return self.appended.get(message_id) or self.found.find(message_id)


@dataclass(frozen=True, slots=True)
class StreamUpdate:
    """The changes that one transaction makes to a stream."""

    head: Head  # contains the tail
    runs: Sequence[PackedRun] = ()
    letters: Sequence[Letter] | None = None  # all dead letters by number; None: unchanged


def stream_key(handler: str, business_id: str = "") -> str:
    """Return a stream's partition key, or the prefix of a handler's keys. Raises `UsageError` for an invalid name."""
    # A name with a hyphen could make the key of an object of another handler.
    if not NAME.fullmatch(handler):
        raise UsageError(
            f"{handler!r} is not a handler's name, which has only letters, digits and _: pass the business id apart."
        )
    return f"{handler}-{business_id}"


def stream_partition(table: Table, handler: str, business_id: str) -> Partition:
    """Return a stream's partition. Raises `UsageError` for an invalid name, `InvalidKeyError` for too long a key."""
    key = stream_key(handler, business_id)
    escape(key)
    return Partition.exact(table, key)


def is_key(key: str) -> bool:
    try:
        escape(key)
    except InvalidKeyError:
        return False
    return True


async def load(table: Table, handler: HandlerDefinition, business_id: str, ids: Collection[IdKey]) -> History:
    """Read the newest state of a stream, and the versions that the messages `ids` made.

    A stream without versions has the initial state. Raises `StreamTruncatedError` if a needed run is truncated
    during the read.
    """
    partition = stream_partition(table, handler.name, business_id)
    codec = handler.codec
    history = await _find_versions(partition, ids)
    if history is None:
        history = History(Stream(partition), Head(None, codec.version))
    if history.head.versions == 0:
        return history._replace(newest=NewestState(handler.initial, codec.version))
    newest = await _newest(history)
    if newest.schema != codec.version:
        newest = NewestState(codec.upcast(newest.encoded, newest.schema), codec.version)
    return history._replace(newest=newest)


async def _write_header(stream: Stream, properties: Properties, includes: Sequence[Include]) -> Stream:
    if stream.etag is None:
        return await Stream.provision(stream.partition, properties, includes)
    return await Stream.set_properties(stream, properties, includes)


async def _newest(history: History) -> NewestState:
    head, number = history.head, history.stream.version
    if head.state is not None:
        return NewestState(head.state, head.schema)
    if head.tail is not None:
        return NewestState(head.tail.run().after, head.tail.schema)
    event = history.found.event(number)
    if event is None:
        (event,) = await _read_runs(history.stream, [number])
    run = stored_runs.read_run(event)
    return NewestState(run.after, run.schema)


async def find_versions(
    table: Table, handler: str, business_id: str, ids: Collection[IdKey]
) -> History | None:
    """Read a stream as `load` does, but skip its newest state. Return `None` if there is no stream.

    Raises `StreamTruncatedError` if a needed run is truncated during the read.
    """
    partition = stream_partition(table, handler, business_id)
    with error_location(table, partition.key):
        return await _find_versions(partition, ids)


async def _find_versions(partition: Partition, ids: Collection[IdKey]) -> History | None:
    select = [*index.PROPERTIES, *dead_letter_rows.PROPERTIES]
    read = await Stream.try_open_with(partition, dead_letter_rows.LAST, select=select, header=HEAD_PROPERTIES)
    if read is None:
        return None
    stream, rows = read
    head = read_head(stream.properties or {})
    index_rows = [index.read_index_row(row) for row in rows if row.row_key.startswith(index.PREFIX)]
    wanted = ids if isinstance(ids, set | frozenset) else set(ids)
    named = [each for each in index.candidates(index_rows, wanted) if each.event >= stream.first_version]
    events = await _read_runs(stream, {place.event for place in named})
    with reading("The index of ids", index.PREFIX):
        found = LoadedVersions(head.tail, events, wanted, named)
    refused = dead_letter_rows.read_letters(
        [row for row in rows if row.row_key.startswith(dead_letter_rows.PREFIX)]
    )
    return History(stream, head, index_rows, found, letters=refused)


async def append(history: History, new: StreamUpdate, beside: Sequence[Include] = ()) -> History:
    """Append versions and replace the head, in one transaction with the operations `beside`. Return the new history.

    Raises `ConcurrencyConflictError` if the stream has changed since `history` was loaded.
    """
    stream, properties = history.stream, new.head.properties()
    letters, includes = history.letters, list(beside)
    if new.letters is not None:
        letters, changes = letters.changed(new.letters)
        includes = [*changes, *includes]
    newest, rows = history.newest, history.index_rows
    if new.head.versions > history.head.versions:
        newest = NewestState(new.head.state or b"", new.head.schema)
    if new.runs:
        key, numbered = index.key_after(rows), enumerate(new.runs, stream.version + 1)
        added = [IndexRow.of(run.first, event, run.ids, key) for event, run in numbered]
        rows, changes = index.index_changes(rows, added, new.head.kept_from)
        events = [run.event for run in new.runs]
        written = await Stream.write(stream, *events, properties=properties, includes=[*changes, *includes])
        stream = written.stream
    else:
        stream = await _write_header(stream, properties, includes)
    return History(stream, new.head, rows, history.found, history.appended, letters, newest)


async def copy_versions(history: History, head: Head, runs: Sequence[Run], last: int) -> History:
    """Append versions up to `last` from the `head` and `runs` of another stream. Costs one transaction per new run."""
    for run in runs:
        count = last - run.first + 1
        if count <= 0 or run.first <= history.head.versions:
            continue
        versions, commits, left = run.versions[:count], list[Commit](), count
        for commit in run.commits:
            if left > 0:
                commits.append(commit._replace(length=min(commit.length, left)))
                left -= commit.length
        part = replace(run, versions=versions, commits=commits)
        own = (head.kept_from, versions.nows[-1], head.horizon, head.undated_cut)
        copied = Head(part.after, run.schema, part.last, *own)._replace(followed=last, shared=True)
        history = await append(history, StreamUpdate(copied, [packed(part)]))
    return history


async def _read_runs(stream: Stream, needed: Collection[int]) -> list[RecordedEvent]:
    if max(needed, default=0) > stream.version:
        raise StoredDataError(
            f"The index of message ids refers to event {max(needed)}, but the stream has only {stream.version}.",
            HEADER,
            stream.partition.key,
        )
    ranges: list[tuple[int, int]] = []
    for number in sorted(needed):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    read = [await Stream.read_events(stream, *each, select=stored_runs.RUN_PROPERTIES) for each in ranges]
    return [event for events in read for event in events]


class StreamHead(NamedTuple):
    """The decoded header of a state stream, and the name of the stream."""

    key: str
    head: Head
    first_event: int
    last_event: int  # less than `first_event` if there are no events

    @property
    def handler(self) -> str:
        return self.key.partition("-")[0]

    @property
    def business_id(self) -> str:
        return self.key.partition("-")[2]

    @property
    def tail(self) -> Tail:
        """The tail. Raises `StoredDataError` if the stream has none."""
        if self.head.tail is None:
            raise StoredDataError("The stream has no tail.", HEADER, self.key)
        return self.head.tail

    @property
    def has_events(self) -> bool:
        return self.last_event >= self.first_event

    @property
    def runs(self) -> int:
        """The number of runs, including the tail."""
        return self.last_event - self.first_event + 1 + (self.head.tail is not None)


def is_state_header(row: Row) -> bool:
    """Return whether a header belongs to a state stream."""
    return "-" in row.partition_key and is_of_state(row.properties) and not is_tombstone(row)


def head_of(row: Row) -> StreamHead:
    """Decode the header of a state stream. Raises `StoredDataError` with the stream's name if the header is corrupt."""
    with reading("", stream=row.partition_key):
        last, first = versions_of(row)
        return StreamHead(row.partition_key, read_head(row.properties), first, last)


async def state_headers(table: Table, keys: KeyRange, select: Sequence[str] = ()) -> AsyncIterator[Row]:
    """Yield headers of state streams in a range, with properties `select` added. Skips corrupt ones in `collecting`."""
    names = [*HEADER_NAMES, "StateVersions", "StateSchema", *select]
    async for row in read_headers(table, keys, names, damaged_row(table)):
        if is_state_header(row):
            yield row


async def stream_heads(table: Table, keys: KeyRange) -> AsyncIterator[StreamHead]:
    """Yield the state streams in a range, in key order. Skips corrupt streams within `collecting`."""
    async for row in state_headers(table, keys, HEAD_PROPERTIES):
        stream = None
        with one_of_many(table, row.partition_key):
            stream = head_of(row)
        if stream is not None:
            yield stream


async def summaries(table: Table, handler: str | None = None, prefix: str = "") -> AsyncIterator[StreamHead]:
    """Yield streams by handler (None: all) and `prefix` of the business id. Skips corrupt ones within `collecting`."""
    keys = KeyRange() if handler is None else KeyRange(stream_key(handler, prefix))
    async for stream in stream_heads(table, keys):
        if stream.business_id.startswith(prefix):
            yield stream


async def stream_keys(table: Table, keys: KeyRange) -> AsyncIterator[list[str]]:
    """Yield the partition keys of state streams in a range, in lists of up to 1,000. Costs one request per list."""
    listed: list[str] = []
    async for row in state_headers(table, keys):
        listed.append(row.partition_key)
        if len(listed) == PAGE_SIZE:
            yield listed
            listed = []
    if listed:
        yield listed


async def made_by(table: Table, key: str) -> tuple[int, list[IdKey]]:
    """Return the number of the first stored version, and the message id of each stored version, oldest first.

    Costs one request for every 1,000 runs.
    """
    with error_location(table, key):
        select = [*stored_runs.INDEX_PROPERTIES, *stored_runs.ID_PROPERTIES]
        slice_ = await Stream.try_read(Partition.exact(table, key), select=select, header=HEAD_PROPERTIES)
        if slice_ is None:
            return 1, []
        head = read_head(slice_.stream.properties or {})
        ids = [id_ for event in slice_.events for id_ in stored_runs.read_ids(event)]
        return head.kept_from, ids + (head.tail.ids() if head.tail is not None else [])


async def versions(table: Table, handler: str, business_id: str) -> list[Version] | None:
    """Return all stored versions, oldest first, or `None` if there is no stream. Costs one request per 1,000 runs."""
    whole = await read_whole(table, handler, business_id)
    return None if whole is None else [version for run in whole[1] for version in run.all()]


async def read_whole(table: Table, handler: str, business_id: str) -> tuple[Head, list[Run]] | None:
    """Return the head of a stream and all of its runs, with the tail last, or `None` if there is no stream."""
    partition = stream_partition(table, handler, business_id)
    with error_location(table, partition.key):
        slice_ = await Stream.try_read(partition)
        if slice_ is None:
            return None
        head = read_head(slice_.stream.properties or {})
        runs = [stored_runs.read_run(event) for event in slice_.events]
        return head, runs if head.tail is None else [*runs, head.tail.run()]
