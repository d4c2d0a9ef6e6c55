"""Recognising events that an earlier attempt has written already.

Finding an id is not enough: someone else may have stored an event with the same id and other contents. What
is one's own has the same ids, in the same order, and the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

from eventstore.events import EventData
from eventstore.limits import prepare_row
from eventstore.partition import Partition
from eventstore.port import Properties, Value
from eventstore.properties import VERSION
from eventstore.reading import EVERYTHING
from eventstore.results import StreamWriteResult
from eventstore.slices import Reader
from eventstore.stream_value import StreamT


async def recorded_before(
    blank: StreamT, events: Sequence[EventData], first_version: int | None
) -> StreamWriteResult[StreamT] | None:
    """Return the result of the write that stored these events, None when no write did.

    They stand one after the other, from `first_version` on if it is given. The stream of the result is the stream as it
    is now; there are no includes in it. One request for each event, and two. Raises `StreamDeletedError`.
    """
    partition = blank.partition
    first = await _version_of(partition, events[0])
    if first is None or first_version not in (None, first):
        return None
    for number, event in enumerate(events[1:], 1):
        if await _version_of(partition, event) != first + number:
            return None
    found = await Reader(blank, EVERYTHING).forwards(first, len(events))
    if found is None or [event.version for event in found.events] != list(range(first, first + len(events))):
        return None
    pairs = zip(found.events, events, strict=True)
    if not all(same_values(stored.properties, event.properties) for stored, event in pairs):
        return None
    recorded = [replace(stored, id=event.id) for stored, event in zip(found.events, events, strict=True)]
    return StreamWriteResult(found.stream, tuple(recorded), repeated=True)


def same_values(stored: Properties, given: Properties) -> bool:
    """Tell whether properties are equal to the type and the bit, once given ones are as they are stored."""
    prepared, _ = prepare_row(given)
    return stored.keys() == prepared.keys() and all(
        _bits(stored[name]) == _bits(value) for name, value in prepared.items()
    )


async def _version_of(partition: Partition, event: EventData) -> int | None:
    row = await partition.table.get(partition.key, partition.event_id(str(event.id)))
    version = None if row is None else row.properties.get(VERSION)
    return version if isinstance(version, int) else None


def _bits(value: Value) -> tuple[type, Value]:
    return type(value), struct.pack("<d", value) if isinstance(value, float) else value
