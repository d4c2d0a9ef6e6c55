"""What a write of events sends, and what a refusal of it means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from eventstore.errors import (
    ConcurrencyConflictError,
    DuplicateEventError,
    EventStoreError,
    IncludeConflictError,
    RowError,
    RowExistsError,
)
from eventstore.events import EventData, RecordedEvent
from eventstore.includes import Include, combine
from eventstore.partition import EVENT, EVENT_ID, Partition
from eventstore.port import Operation
from eventstore.properties import VERSION

_STREAM_ROW = re.compile(r"(.*\|)?SS-(HEAD$|SE-|UID-)", re.DOTALL)


def event_operations(partition: Partition, version: int, events: Sequence[EventData]) -> list[Operation]:
    """Return the inserts of events after a version: each event, and its id right after it.

    Raises `DuplicateEventError` when two of the events have one id.
    """
    operations: list[Operation] = []
    ids: set[str] = set()
    for event in events:
        version += 1
        operations.append(Operation.insert(partition.event(version), {VERSION: version, **event.properties}))
        if event.id is None:
            continue
        event_id = event.id.value
        if event_id in ids:
            raise DuplicateEventError(str(partition), event_id)
        ids.add(event_id)
        operations.append(Operation.insert(partition.event_id(event_id), {VERSION: version}))
    return operations


def all_includes(events: Sequence[EventData], includes: Iterable[Include]) -> tuple[Include, ...]:
    """Return the includes of the events and of the whole write, one for each row.

    Raises `ValueError` for a row of a stream: those are changed by writing to the stream only.
    """
    given = [include for event in events for include in event.includes]
    given.extend(includes)
    if not given:
        return ()
    for include in given:
        if _STREAM_ROW.match(include.row_key):
            raise ValueError(
                f"The row {include.row_key!r} is part of a stream and cannot be included in a write."
            )
    return combine(given)


def with_etags(includes: Sequence[Include], etags: Sequence[str]) -> tuple[Include, ...]:
    """Return the includes with their rows' new ETags, which are the last ones of the transaction."""
    own = etags[len(etags) - len(includes) :]
    return tuple([replace(include, etag=etag) for include, etag in zip(includes, own, strict=True)])


def recorded(version: int, events: Sequence[EventData], etags: Sequence[str]) -> tuple[RecordedEvent, ...]:
    """Return the events as recorded after a version, given the ETags of the whole transaction."""
    place = 1
    found: list[RecordedEvent] = []
    for number, event in enumerate(events, version + 1):
        found.append(RecordedEvent(number, event.properties, event.id, etag=etags[place]))
        place += 1 if event.id is None else 2
    return tuple(found)


async def transact(partition: Partition, operations: Sequence[Operation]) -> tuple[str, ...]:
    """Carry out the operations; say what a refusal means for the stream."""
    try:
        return await partition.table.transact(partition.key, operations)
    except RowError as error:
        raise _explained(error, partition) from error


def _explained(error: RowError, partition: Partition) -> EventStoreError:
    """Return what the refusal of one row says about the write: of the header, an event, its id or an include."""
    stream, row_key = str(partition), error.row_key
    if error.index == 0:
        return ConcurrencyConflictError(stream, f"its header {error.detail}")
    if row_key.startswith(partition.prefix + EVENT_ID) and isinstance(error, RowExistsError):
        return DuplicateEventError(stream, row_key[len(partition.prefix) + len(EVENT_ID) :])
    if row_key.startswith((partition.prefix + EVENT, partition.prefix + EVENT_ID)):
        return ConcurrencyConflictError(stream, f"its row {row_key!r} {error.detail}")
    return IncludeConflictError(stream, row_key, error.detail)
