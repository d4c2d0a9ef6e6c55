"""State streams: load the versions of some messages, and append new ones.

The stream of a business object has the partition key `{Handler}-{business id}`. Its newest versions are in the tail,
in the header; older ones are in runs, one event each, whose message ids are indexed in rows of
their own. Loading costs one query, whatever the history, and one more for each stretch of runs that hold duplicates, or
for the newest run when the state is too large for the header; appending costs one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from eventstore import Include, InvalidKeyError, Partition, Properties, RecordedEvent, Stream, Table
from eventstore.keys import escape
from eventstore.partition import HEADER
from handlers.app import HandlerDefinition
from runtime.errors import StoredDataError
from runtime.messages.message_ids import IdKey
from runtime.storage import id_index, letters
from runtime.storage.damage import placed, reading
from runtime.storage.head import HEAD_PROPERTIES, Head, read_head
from runtime.storage.history import FoundVersions, History, NewestState
from runtime.storage.id_index import IndexRow, candidates, index_changes, key_after, read_index_row
from runtime.storage.letters import Letter
from runtime.storage.packing import PackedRun
from runtime.storage.run import DATA_PROPERTIES, ID_PROPERTIES, INDEX_PROPERTIES, read_run

_BESIDE = [*id_index.PROPERTIES, *letters.PROPERTIES]
"""What is read of the rows between the header and the events."""


@dataclass(frozen=True, slots=True)
class Append:
    """What one transaction adds to a stream: the runs, and the head after them, which holds the tail.

    `letters` are all letters of the stream, in the order of their numbers, None when none was added or changed.
    """

    head: Head
    runs: Sequence[PackedRun] = ()
    letters: Sequence[Letter] | None = None


def stream_partition(table: Table, handler: str, business_id: str) -> Partition:
    """Return where the stream of a business object is. Raises `InvalidKeyError` for a key that is too long."""
    key = f"{handler}-{business_id}"
    escape(key)
    return Partition.exact(table, key)


def is_key(key: str) -> bool:
    """Say whether a stream can have this partition key: whether it is short enough."""
    try:
        escape(key)
    except InvalidKeyError:
        return False
    return True


async def load(table: Table, handler: HandlerDefinition, business_id: str, ids: Collection[IdKey]) -> History:
    """Read the newest state of a stream, and the versions that messages with these ids have made.

    One range query that begins at the header tells which ids may be known; the header it read is the one on
    which an append is conditional. Raises `StreamTruncatedError` when truncation took a run in between, and
    `StoredDataError`.
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


async def find_versions(
    table: Table, handler: str, business_id: str, ids: Collection[IdKey]
) -> History | None:
    """Read a stream as `load` does, without its newest state, which no code needs to understand then.

    Return None when there is no stream. Raises `StreamTruncatedError` and `StoredDataError`.
    """
    partition = stream_partition(table, handler, business_id)
    with placed(table, partition.key):
        return await _find_versions(partition, ids)


async def _find_versions(partition: Partition, ids: Collection[IdKey]) -> History | None:
    read = await Stream.try_open_with(partition, letters.LAST, select=_BESIDE, header=HEAD_PROPERTIES)
    if read is None:
        return None
    stream, rows = read
    head = read_head(stream.properties or {})
    index = [read_index_row(row) for row in rows if row.row_key.startswith(id_index.PREFIX)]
    wanted = ids if isinstance(ids, set | frozenset) else set(ids)
    named = [each for each in candidates(index, wanted) if each.event >= stream.first_version]
    events = await _read_runs(stream, {place.event for place in named})
    with reading("The index of ids", id_index.PREFIX):
        found = FoundVersions.of(wanted, head.tail, named, events)
    refused = letters.read_letters([row for row in rows if row.row_key.startswith(letters.PREFIX)])
    return History(stream, head, index, found, letters=refused)


async def append(history: History, new: Append, beside: Sequence[Include] = ()) -> History:
    """Append new versions and move the head, in one transaction that fails when anybody wrote since the load.

    `beside` are changes of other rows of the stream's partition in the same transaction. Return the history after it.
    Raises `ConcurrencyConflictError`; then, and after `StoreUnavailableError`, load again.
    """
    stream, properties = history.stream, new.head.properties()
    kept, includes = (
        history.letters.changed(new.letters) if new.letters is not None else (history.letters, [])
    )
    includes = [*includes, *beside]
    newest = history.newest
    if new.head.versions > history.head.versions:
        newest = NewestState(new.head.state or b"", new.head.schema)
    if not new.runs:
        stream = await _write_header(stream, properties, includes)
        return history._replace(stream=stream, head=new.head, newest=newest, letters=kept)
    key = key_after(history.index_rows)
    indexed = [
        IndexRow.of(run.first, event, run.ids, key) for event, run in enumerate(new.runs, stream.version + 1)
    ]
    index, changes = index_changes(history.index_rows, indexed, new.head.kept_from)
    events = [run.event for run in new.runs]
    written = await Stream.write(stream, *events, properties=properties, includes=[*changes, *includes])
    return history._replace(
        stream=written.stream, head=new.head, newest=newest, index_rows=index, letters=kept
    )


async def _write_header(stream: Stream, properties: Properties, includes: Sequence[Include]) -> Stream:
    if stream.etag is None:
        return await Stream.provision(stream.partition, properties, includes)
    return await Stream.set_properties(stream, properties, includes)


async def _newest(history: History) -> NewestState:
    """Return the newest state as it is stored: in the header, in the tail, or else in the newest run."""
    head, newest = history.head, history.stream.version
    if head.state is not None:
        return NewestState(head.state, head.schema)
    if head.tail is not None:
        return NewestState(head.tail.run().after, head.tail.schema)
    event = history.found.event(newest)
    if event is None:
        (event,) = await _read_runs(history.stream, [newest])
    run = read_run(event)
    return NewestState(run.after, run.schema)


async def _read_runs(stream: Stream, needed: Collection[int]) -> list[RecordedEvent]:
    """Read the runs in some events. One request for each stretch of events without a gap."""
    select = [*INDEX_PROPERTIES, *ID_PROPERTIES, *DATA_PROPERTIES]
    events: list[RecordedEvent] = []
    if max(needed, default=0) > stream.version:
        message = f"The index of ids names event {max(needed)}, and the stream has {stream.version}."
        raise StoredDataError(message, HEADER, stream.partition.key)
    for first, last in _stretches(sorted(needed)):
        events += await Stream.read_events(stream, first, last, select=select)
    return events


def _stretches(numbers: Sequence[int]) -> list[tuple[int, int]]:
    stretches: list[tuple[int, int]] = []
    for number in numbers:
        if stretches and stretches[-1][1] == number - 1:
            stretches[-1] = (stretches[-1][0], number)
        else:
            stretches.append((number, number))
    return stretches
