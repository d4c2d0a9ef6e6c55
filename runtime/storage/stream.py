"""State streams: load the versions that some messages need, and append new ones.

The stream of a business object has the partition key `{Handler}-{business id}`. Its newest versions are in the tail,
in the header; those before in runs, each in an event of the stream, whose message ids are indexed in rows of
their own. Loading costs one query, whatever the history, and one more for each stretch of runs that hold duplicates;
appending costs one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from eventstore import EventData, Partition, RecordedEvent, Stream, Table
from eventstore.keys import escape
from handlers.app import HandlerDefinition
from runtime.messages.message_ids import IdKey
from runtime.storage.columns import StateVersion
from runtime.storage.head import HEAD_PROPERTIES, Head, read_head
from runtime.storage.id_index import (
    LAST,
    PROPERTIES,
    Candidate,
    IndexedRun,
    IndexRow,
    candidates,
    index_changes,
    read_index_row,
)
from runtime.storage.run import (
    DATA_PROPERTIES,
    ID_PROPERTIES,
    INDEX_PROPERTIES,
    Run,
    read_ids,
    read_run,
)
from runtime.storage.tail import NO_EVENT, Segment, Tail


class KnownVersion(NamedTuple):
    """A stored version of one of the messages that a stream was loaded for.

    `before` is the encoded state on which it was made, in schema version `schema`; `batch` wrote it.
    """

    number: int
    version: StateVersion
    before: bytes
    after: bytes
    schema: int
    batch: str | None


@dataclass(frozen=True, slots=True)
class Append:
    """New versions to append: runs with their events, or else a segment of the tail; and the head after them.

    `before` is the state before the segment's first version, which is `first`.
    """

    head: Head
    runs: Sequence[IndexedRun] = ()
    events: Sequence[EventData] = ()
    segment: Segment | None = None
    first: int = 0
    before: bytes = b""


@dataclass(slots=True)
class LoadedStream:
    """A state stream as it was read: its header's value, its head and index, and where the known messages stand."""

    stream: Stream
    head: Head
    index: Sequence[IndexRow] = ()
    places: dict[IdKey, tuple[int, int]] = field(default_factory=dict)
    events: dict[int, RecordedEvent] = field(default_factory=dict)
    _tail: Tail | None = None
    _run: tuple[int, Run, list[bytes]] | None = None

    def find(self, message_id: IdKey) -> KnownVersion | None:
        """Return the version that a message made, None when it made none that is kept."""
        place = self.places.get(message_id)
        if place is None:
            return None
        event, position = place
        if self._run is None or self._run[0] != event:
            run = read_run(self.events[event]) if event != NO_EVENT else self._read_tail()
            self._run = (event, run, run.states_before())
        _, run, states = self._run
        version, before = run.versions[position], states[position]
        after = before if version.after is None else version.after
        batch = run.commit_of(position).batch
        return KnownVersion(run.first + position, version, before, after, run.schema, batch)

    def read_from_tail(self, wanted: Collection[IdKey]) -> None:
        """Find messages in the tail."""
        tail = self.head.tail
        if tail is None:
            return
        self._tail = tail
        for position, message_id in enumerate(tail.ids()):
            if message_id in wanted:
                self.places[message_id] = (NO_EVENT, position)

    def _read_tail(self) -> Run:
        if self._tail is None:
            raise AssertionError("Places in the tail are found by reading it.")
        return self._tail.run()


async def load_state(
    table: Table, handler: HandlerDefinition, business_id: str, ids: Collection[IdKey]
) -> LoadedStream:
    """Read the newest state of a stream, and the versions that messages with these ids have made.

    One range query that begins at the header tells which ids may be known; the header it read is the one on
    which an append is conditional. Raises `StreamTruncatedError` when truncation took a run in between.
    """
    loaded = await find_versions(table, handler.name, business_id, ids)
    if loaded is None:
        partition = stream_partition(table, handler.name, business_id)
        return LoadedStream(Stream(partition), Head(handler.initial, handler.codec.version))
    await _load_newest_state(loaded, handler)
    return loaded


async def find_versions(
    table: Table, handler: str, business_id: str, ids: Collection[IdKey]
) -> LoadedStream | None:
    """Read a stream as `load_state` does, without its newest state, which no code needs to understand then.

    Return None when there is no stream. Raises `StreamTruncatedError`.
    """
    partition = stream_partition(table, handler, business_id)
    found = await Stream.try_open_with(partition, LAST, select=PROPERTIES, header=HEAD_PROPERTIES)
    if found is None:
        return None
    stream, rows = found
    loaded = LoadedStream(stream, read_head(stream.properties or {}), [read_index_row(row) for row in rows])
    wanted = ids if isinstance(ids, set | frozenset) else set(ids)
    loaded.read_from_tail(wanted)
    await _find_in_runs(loaded, wanted)
    return loaded


async def append(loaded: LoadedStream, addition: Append) -> None:
    """Append new versions and move the head, in one transaction that fails when anybody wrote since the load.

    What fits stays in the tail; a tail that is full becomes a run before the new versions. Raises
    `ConcurrencyConflictError`; then, and after `StoreUnavailableError`, load again.
    """
    stream, tail, segment = loaded.stream, loaded.head.tail, addition.segment
    events, runs = list(addition.events), list(addition.runs)
    schema = addition.head.schema
    if tail is not None and not (segment is not None and tail.takes(segment, schema)):
        run = tail.run()
        events.insert(0, run.event())
        runs.insert(0, IndexedRun.of(run))
        tail = None
    if segment is not None:
        tail = (tail or Tail(addition.first, schema, addition.before)).plus(segment)
    head = replace(addition.head, tail=tail)
    if not runs:
        loaded.stream = await _write_header(stream, head)
    else:
        first = (
            addition.head.versions - sum(run.length for run in runs) - (segment.length if segment else 0) + 1
        )
        loaded.index, changes = index_changes(loaded.index, first, stream.version + 1, runs, head.kept_from)
        result = await Stream.write(stream, *events, properties=head.properties(), includes=changes)
        loaded.stream = result.stream
    loaded.head = head


def stream_partition(table: Table, handler: str, business_id: str) -> Partition:
    """Return where the stream of a business object is. Raises `InvalidKeyError` for a key that is too long."""
    key = f"{handler}-{business_id}"
    escape(key)
    return Partition.exact(table, key)


async def _write_header(stream: Stream, head: Head) -> Stream:
    if stream.etag is None:
        return await Stream.provision(stream.partition, head.properties())
    return await Stream.set_properties(stream, head.properties())


async def _find_in_runs(loaded: LoadedStream, wanted: Collection[IdKey]) -> None:
    """Look up the versions that the index names."""
    first_event = loaded.stream.first_version
    found = [each for each in candidates(loaded.index, wanted) if each.event >= first_event]
    await _load_runs(loaded, {candidate.event for candidate in found})
    ids = {event: read_ids(recorded) for event, recorded in loaded.events.items()}
    for candidate in found:
        if _is_at(ids[candidate.event], candidate):
            loaded.places[candidate.key] = (candidate.event, candidate.position)


def _is_at(ids: Sequence[IdKey], candidate: Candidate) -> bool:
    return ids[candidate.position] == candidate.key


async def _load_runs(loaded: LoadedStream, needed: Iterable[int]) -> None:
    for first, last in _stretches(sorted(needed)):
        events = await Stream.read_events(
            loaded.stream, first, last, select=[*INDEX_PROPERTIES, *ID_PROPERTIES, *DATA_PROPERTIES]
        )
        loaded.events.update((event.version, event) for event in events)


async def _load_newest_state(loaded: LoadedStream, handler: HandlerDefinition) -> None:
    head, newest = loaded.head, loaded.stream.version
    if head.state is None:
        if newest not in loaded.events:
            await _load_runs(loaded, [newest])
        run = read_run(loaded.events[newest])
        head = replace(head, state=run.after, schema=run.schema)
    state = handler.codec.upcast(head.state or b"", head.schema)
    loaded.head = replace(head, state=state, schema=handler.codec.version)


def _stretches(numbers: Sequence[int]) -> list[tuple[int, int]]:
    stretches: list[tuple[int, int]] = []
    for number in numbers:
        if stretches and stretches[-1][1] == number - 1:
            stretches[-1] = (stretches[-1][0], number)
        else:
            stretches.append((number, number))
    return stretches
