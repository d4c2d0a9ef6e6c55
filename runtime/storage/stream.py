"""State streams: load the versions of some messages, and append new ones.

The stream of a business object has the partition key `{Handler}-{business id}`. Its newest versions are in the tail,
in the header; older ones are in runs, one event each, whose message ids are indexed in rows of
their own. Loading costs one query, whatever the history, and one more for each stretch of runs that hold duplicates, or
for the newest run when the state is too large for the header; appending costs one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from eventstore import Partition, Properties, RecordedEvent, Stream, Table
from eventstore.keys import escape
from handlers.app import HandlerDefinition
from runtime.messages.message_ids import IdKey
from runtime.storage.head import HEAD_PROPERTIES, Head, read_head
from runtime.storage.history import FoundVersions, History
from runtime.storage.id_index import LAST, PROPERTIES, candidates, index_changes, read_index_row
from runtime.storage.packing import PackedRun
from runtime.storage.run import DATA_PROPERTIES, ID_PROPERTIES, INDEX_PROPERTIES, read_run


@dataclass(frozen=True, slots=True)
class Append:
    """What one transaction adds to a stream: the runs, and the head after them, which holds the tail."""

    head: Head
    runs: Sequence[PackedRun] = ()


def stream_partition(table: Table, handler: str, business_id: str) -> Partition:
    """Return where the stream of a business object is. Raises `InvalidKeyError` for a key that is too long."""
    key = f"{handler}-{business_id}"
    escape(key)
    return Partition.exact(table, key)


async def load(table: Table, handler: HandlerDefinition, business_id: str, ids: Collection[IdKey]) -> History:
    """Read the newest state of a stream, and the versions that messages with these ids have made.

    One range query that begins at the header tells which ids may be known; the header it read is the one on
    which an append is conditional. Raises `StreamTruncatedError` when truncation took a run in between.
    """
    history = await find_versions(table, handler.name, business_id, ids)
    if history is None:
        partition = stream_partition(table, handler.name, business_id)
        return History(Stream(partition), Head(handler.initial, handler.codec.version))
    if history.head.versions == 0:
        initial = replace(history.head, state=handler.initial, schema=handler.codec.version)
        return replace(history, head=initial)
    head = await _with_state(history)
    state = handler.codec.upcast(head.state or b"", head.schema)
    return replace(history, head=replace(head, state=state, schema=handler.codec.version))


async def find_versions(
    table: Table, handler: str, business_id: str, ids: Collection[IdKey]
) -> History | None:
    """Read a stream as `load` does, without its newest state, which no code needs to understand then.

    Return None when there is no stream. Raises `StreamTruncatedError`.
    """
    partition = stream_partition(table, handler, business_id)
    read = await Stream.try_open_with(partition, LAST, select=PROPERTIES, header=HEAD_PROPERTIES)
    if read is None:
        return None
    stream, rows = read
    head, index = read_head(stream.properties or {}), [read_index_row(row) for row in rows]
    wanted = ids if isinstance(ids, set | frozenset) else set(ids)
    named = [each for each in candidates(index, wanted) if each.event >= stream.first_version]
    events = await _read_runs(stream, {candidate.event for candidate in named})
    return History(stream, head, index, FoundVersions.of(wanted, head.tail, named, events))


async def append(history: History, new: Append) -> History:
    """Append new versions and move the head, in one transaction that fails when anybody wrote since the load.

    Return the history after it. Raises `ConcurrencyConflictError`; then, and after `StoreUnavailableError`, load again.
    """
    stream, properties = history.stream, new.head.properties()
    if not new.runs:
        return replace(history, stream=await _write_header(stream, properties), head=new.head)
    index, changes = index_changes(
        history.index,
        new.runs[0].first,
        stream.version + 1,
        [run.indexed for run in new.runs],
        new.head.kept_from,
    )
    events = [run.event for run in new.runs]
    written = await Stream.write(stream, *events, properties=properties, includes=changes)
    return replace(history, stream=written.stream, head=new.head, index=index)


async def _write_header(stream: Stream, properties: Properties) -> Stream:
    if stream.etag is None:
        return await Stream.provision(stream.partition, properties)
    return await Stream.set_properties(stream, properties)


async def _with_state(history: History) -> Head:
    """Return the head with the newest state, which is read from the newest run when the header does not hold it."""
    head, newest = history.head, history.stream.version
    if head.state is not None:
        return head
    event = history.found.event(newest)
    if event is None:
        (event,) = await _read_runs(history.stream, [newest])
    run = read_run(event)
    return replace(head, state=run.after, schema=run.schema)


async def _read_runs(stream: Stream, needed: Iterable[int]) -> list[RecordedEvent]:
    """Read the runs in some events. One request for each stretch of events without a gap."""
    select = [*INDEX_PROPERTIES, *ID_PROPERTIES, *DATA_PROPERTIES]
    events: list[RecordedEvent] = []
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
