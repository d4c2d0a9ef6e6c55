"""State streams: load the versions that some messages need, and append new ones.

The stream of a business object has the partition key `{Handler}-{business id}`. Loading costs one query,
and one more for each stretch of runs that hold duplicates; appending costs one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from eventstore import EventData, Partition, RecordedEvent, Stream, Table
from eventstore.keys import escape
from handlers.app import HandlerDefinition
from runtime.head import HEAD_PROPERTIES, Head, read_head
from runtime.message_ids import IdKey
from runtime.run import DATA_PROPERTIES, INDEX_PROPERTIES, Run, RunIndex, StateVersion, read_index, read_run


@dataclass(frozen=True, slots=True)
class KnownVersion:
    """A stored version of one of the messages that a stream was loaded for.

    `before` is the encoded state on which it was made, in schema version `schema`; `batch` wrote it.
    """

    number: int
    version: StateVersion
    before: bytes
    after: bytes
    schema: int
    batch: str | None


@dataclass(slots=True)
class LoadedStream:
    """A state stream as it was read: its header's value, its head, and where the known messages stand."""

    stream: Stream
    head: Head
    places: dict[IdKey, tuple[RunIndex, int]] = field(default_factory=dict)
    events: dict[int, RecordedEvent] = field(default_factory=dict)
    _run: tuple[int, Run, list[bytes]] | None = None

    def find(self, message_id: IdKey) -> KnownVersion | None:
        """Return the version that a message made, None when it made none that is kept."""
        place = self.places.get(message_id)
        if place is None:
            return None
        index, position = place
        if self._run is None or self._run[0] != index.event:
            run = read_run(self.events[index.event])
            self._run = (index.event, run, run.states_before())
        _, run, states = self._run
        version, before = run.versions[position], states[position]
        after = before if version.after is None else version.after
        return KnownVersion(index.first + position, version, before, after, run.schema, run.batch)


async def load_state(
    table: Table, handler: HandlerDefinition, business_id: str, ids: Collection[IdKey]
) -> LoadedStream:
    """Read the newest state of a stream, and the versions that messages with these ids have made.

    One range query that begins at the header tells which ids are known; the header it read is the one on
    which an append is conditional. Raises `StreamTruncatedError` when truncation took a run in between.
    """
    partition = stream_partition(table, handler.name, business_id)
    slice_ = await Stream.try_read(
        partition, slice_size=None, select=INDEX_PROPERTIES, header=HEAD_PROPERTIES
    )
    if slice_ is None:
        return LoadedStream(Stream(partition), Head(handler.initial, handler.codec.version))
    loaded = LoadedStream(slice_.stream, read_head(slice_.stream.properties or {}))
    wanted = ids if isinstance(ids, set | frozenset) else set(ids)
    for event in slice_.events:
        index = read_index(event)
        for position, message_id in enumerate(index.ids):
            if message_id in wanted:
                loaded.places[message_id] = (index, position)
    needed = {index.event for index, _ in loaded.places.values()}
    await _load_runs(loaded, needed)
    await _load_newest_state(loaded, handler)
    return loaded


async def append_runs(loaded: LoadedStream, events: Sequence[EventData], head: Head) -> None:
    """Append runs and move the head, in one transaction that fails when anybody wrote since the load.

    Raises `ConcurrencyConflictError`; then, and after `StoreUnavailableError`, load again.
    """
    result = await Stream.write(loaded.stream, *events, properties=head.properties())
    loaded.stream = result.stream
    loaded.head = head


def stream_partition(table: Table, handler: str, business_id: str) -> Partition:
    """Return where the stream of a business object is. Raises `InvalidKeyError` for a key that is too long."""
    key = f"{handler}-{business_id}"
    escape(key)
    return Partition.exact(table, key)


async def _load_runs(loaded: LoadedStream, needed: Iterable[int]) -> None:
    for first, last in _stretches(sorted(needed)):
        events = await Stream.read_events(
            loaded.stream, first, last, select=[*INDEX_PROPERTIES, *DATA_PROPERTIES]
        )
        loaded.events.update((event.version, event) for event in events)


async def _load_newest_state(loaded: LoadedStream, handler: HandlerDefinition) -> None:
    head, newest = loaded.head, loaded.stream.version
    if head.state is None:
        if newest not in loaded.events:
            await _load_runs(loaded, [newest])
        run = read_run(loaded.events[newest])
        states = run.states_before()
        head = replace(head, state=run.versions[-1].after or states[-1], schema=run.schema)
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
