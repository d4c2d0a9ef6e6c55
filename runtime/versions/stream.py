"""State streams: load the versions of some messages, and append new ones.

The partition key of a stream is `{Handler}-{business id}`. The newest versions are in the tail in the header, older
ones in runs, one event each, whose message ids are indexed. Loading costs a query, one per contiguous range of runs
with duplicates, and one for the newest run if its state exceeds the header. Appending costs one transaction.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from eventstore import Include, KeyRange, Partition, Properties, RecordedEvent, Row, Stream, Table
from eventstore.errors import InvalidKeyError
from eventstore.header import HEADER, is_tombstone
from eventstore.keys import escape
from eventstore.port import PAGE_SIZE
from eventstore.reading import Selection, stream_read
from eventstore.stream import read_headers
from handlers.app import HandlerDefinition
from handlers.message import NAME
from runtime.errors import StoredDataError, UsageError
from runtime.messages.envelope import IdKey
from runtime.versions import dead_letter_rows, index
from runtime.versions import run as stored_runs
from runtime.versions.dead_letter_rows import NO_LETTERS, Letter, Letters
from runtime.versions.head import HEAD_PROPERTIES, NO_EVENT, Head, Tail, is_of_state, read_head
from runtime.versions.index import IndexRow, VersionPosition
from runtime.versions.packing import NewestState, PackedRun, packed
from runtime.versions.properties import damaged_row, error_location, one_of_many, reading
from runtime.versions.run import Commit, Run, Version


class LoadedVersions:
    """The versions of `wanted` messages, in the tail and at indexed positions in runs. Decodes one run at a time."""

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
        if tail is not None:
            ids_of_tail = tail.ids()
            if not wanted.isdisjoint(ids_of_tail):
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
        """Return the version that a message made, or `None` if it made none, or if the version was truncated."""
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
    """A stream as it was loaded, with the changes appended since."""

    stream: Stream  # the next append is conditional on its ETag
    head: Head  # as stored, in the recorded schema version
    index_rows: Sequence[IndexRow] = ()
    found: LoadedVersions = LoadedVersions()
    # Since the load, if more copies of the messages wait.
    appended: Mapping[IdKey, Version] = MappingProxyType({})
    letters: Letters = NO_LETTERS
    newest: NewestState = NewestState()  # empty if the stream was loaded without it

    def has(self, message_id: IdKey) -> bool:
        return message_id in self.appended or message_id in self.found

    def find(self, message_id: IdKey) -> Version | None:
        """Return the version that a message made, or `None` if it made none, or if the version was truncated."""
        return self.appended.get(message_id) or self.found.find(message_id)


@dataclass(frozen=True, slots=True)
class StreamUpdate:
    """The changes of a stream in one transaction."""

    head: Head  # contains the tail
    runs: Sequence[PackedRun] = ()
    letters: Sequence[Letter] | None = None  # all dead letters by number; None: unchanged


def stream_key(handler: str, business_id: str = "") -> str:
    """Return the partition key of a stream, or the prefix of a handler's keys. Raises `UsageError`."""
    # A name with a hyphen could make the key of another handler's object.
    if not NAME.fullmatch(handler):
        raise UsageError(
            f"{handler!r} is not a handler's name, which has only letters, digits and _: pass the business id apart."
        )
    return f"{handler}-{business_id}"


def stream_partition(table: Table, handler: str, business_id: str) -> Partition:
    """Return the partition of a stream. Raises `InvalidKeyError` if its key is too long, and `UsageError`."""
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
    """Read the newest state of a stream, and the versions of some messages. Raises `StreamTruncatedError`."""
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
    """Read a stream as `load` does, without its newest state, or return `None`. Raises `StreamTruncatedError`."""
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
    """Append versions and replace the head in one transaction, unless the stream has changed. Return the history."""
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
    """Append the runs of another stream, which has this head, up to version `last`. Costs a transaction per run."""
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
    stretches: list[tuple[int, int]] = []
    for number in sorted(needed):
        if stretches and stretches[-1][1] == number - 1:
            stretches[-1] = (stretches[-1][0], number)
        else:
            stretches.append((number, number))
    select = [*stored_runs.INDEX_PROPERTIES, *stored_runs.ID_PROPERTIES, *stored_runs.DATA_PROPERTIES]
    read = [await Stream.read_events(stream, first, last, select=select) for first, last in stretches]
    return [event for events in read for event in events]


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """A stream as described by its header."""

    handler: str
    business_id: str
    head: Head
    runs: int

    @property
    def key(self) -> str:
        return f"{self.handler}-{self.business_id}"


async def summaries(
    table: Table, handler: str | None = None, prefix: str = ""
) -> AsyncIterator[StreamSummary]:
    """Yield the streams of a table in key order, of one handler or all. Skips corrupt ones within `collecting`."""
    keys = KeyRange() if handler is None else KeyRange(stream_key(handler, prefix))
    async for stream in state_streams(table, keys, HEAD_PROPERTIES):
        head = None
        with one_of_many(table, stream.partition.key):
            head = read_head(stream.properties or {})
        name, _, business_id = stream.partition.key.partition("-")
        if head is not None and business_id.startswith(prefix):
            runs = stream.version - stream.first_version + 1 + (head.tail is not None)
            yield StreamSummary(name, business_id, head, runs)


async def state_streams(table: Table, keys: KeyRange, header: Sequence[str]) -> AsyncIterator[Stream]:
    """Yield the state streams in a range, with some properties. Skips corrupt ones within `collecting`."""
    selection = Selection.of((), [*header, "StateVersions", "StateSchema"])
    async for row in read_headers(table, keys, selection.query, damaged_row(table)):
        stream = None
        if _is_of_state(row):
            with one_of_many(table, row.partition_key):
                stream = stream_read(Stream(Partition.exact(table, row.partition_key)), row, selection)
        if stream is not None:
            yield stream


async def stream_keys(table: Table, keys: KeyRange) -> AsyncIterator[list[str]]:
    """Yield the partition keys of state streams in a range, in lists of up to 1,000. Costs one request per list."""
    found: list[str] = []
    selection = Selection.of((), ["StateVersions", "StateSchema"])
    async for row in read_headers(table, keys, selection.query, damaged_row(table)):
        if _is_of_state(row):
            found.append(row.partition_key)
        if len(found) == PAGE_SIZE:
            yield found
            found = []
    if found:
        yield found


async def made_by(table: Table, key: str) -> tuple[int, list[IdKey]]:
    """Return the first stored version, and the ids of the messages that made versions: one request per 1,000 runs."""
    with error_location(table, key):
        select = [*stored_runs.INDEX_PROPERTIES, *stored_runs.ID_PROPERTIES]
        slice_ = await Stream.try_read(Partition.exact(table, key), select=select, header=HEAD_PROPERTIES)
        if slice_ is None:
            return 1, []
        head = read_head(slice_.stream.properties or {})
        ids = [id_ for event in slice_.events for id_ in stored_runs.read_ids(event)]
        return head.kept_from, ids + (head.tail.ids() if head.tail is not None else [])


async def versions(table: Table, handler: str, business_id: str) -> list[Version] | None:
    """Return all stored versions, oldest first, or `None` without a stream. Costs one request for every 1,000 runs."""
    found = await read_whole(table, handler, business_id)
    return None if found is None else [version for run in found[1] for version in run.all()]


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


def is_state_stream(stream: Stream) -> bool:
    return "-" in stream.partition.key and is_of_state(stream.properties or {})


def _is_of_state(row: Row) -> bool:
    return "-" in row.partition_key and is_of_state(row.properties) and not is_tombstone(row)
