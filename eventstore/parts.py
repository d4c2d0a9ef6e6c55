"""Writing more events than one transaction takes, one transaction after the other.

All parts are checked before the first is sent. Each is atomic, all of them together are not: a reader sees the
parts appear, and a failure leaves those before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eventstore.appending import Draft, append, append_once, first_version
from eventstore.errors import EventStoreError, PartialWriteError, StoreUnavailableError
from eventstore.events import EventData
from eventstore.expected_version import ExpectedVersion
from eventstore.header import header_operation
from eventstore.limits import MAX_OPERATIONS, MAX_TRANSACTION_BYTES, prepare_row
from eventstore.port import Operation, Properties
from eventstore.results import StreamWriteResult
from eventstore.sent_size import AROUND_ALL_BYTES, operation_size
from eventstore.stream_value import StreamT, StreamValue
from eventstore.writing import event_operations

MAX_STREAM_VERSION = 2**31 - 1
"""A stream's version is an `int` property."""


async def append_in_parts(
    events: Sequence[EventData],
    target: StreamT,
    expected: int | ExpectedVersion | None,
    properties: Properties | None,
    *,
    idempotent: bool,
) -> StreamWriteResult[StreamT]:
    """Write the parts in turn, the stream's new properties with the last one.

    Raises `PartialWriteError` when a part fails after others were stored, or fails with an unknown outcome.
    """
    write = append_once if idempotent else append
    first = first_version(target, expected)
    done: list[StreamWriteResult[StreamT]] = []
    for draft in _drafts(target, events, properties):
        try:
            result = await write(draft, target, expected)
        except EventStoreError as error:
            stored = sum(len(before.events) for before in done)
            uncertain = len(draft.events) if _has_unknown_outcome(error) else 0
            if not stored and not uncertain:
                raise
            raise PartialWriteError(str(target.partition), first, stored, uncertain, len(events)) from error
        done.append(result)
        first = first or result.events[0].version
        target, expected = _position_after(result)
    return StreamWriteResult(
        done[-1].stream,
        tuple([event for result in done for event in result.events]),
        tuple([include for result in done for include in result.includes]),
        repeated=all(result.repeated for result in done),
    )


def _drafts(target: StreamValue, events: Sequence[EventData], properties: Properties | None) -> list[Draft]:
    """Return the parts, each of them checked as it will be sent."""
    # Sees an id that stands twice, in whatever parts.
    event_operations(target.partition, target.version, events)
    later = _as_written(target)
    parts = _split(events, target, later, properties)
    drafts = [replace(Draft.of(part), keep=number > 0) for number, part in enumerate(parts)]
    drafts[-1] = replace(drafts[-1], properties=properties)
    included: set[str] = set()
    for number, draft in enumerate(drafts):
        draft.check(later if number else target)
        for include in draft.includes:
            if include.row_key in included:
                raise ValueError(
                    f"The row {include.row_key!r} is changed by events of different parts; put those into one write."
                )
            included.add(include.row_key)
    return drafts


def _as_written(target: StreamValue) -> StreamValue:
    """Return a stream as it may be once the first part is written, its numbers as long as they can be."""
    version = MAX_STREAM_VERSION - MAX_OPERATIONS
    return replace(target, etag="of the part before", version=version, first_version=version)


def _split(
    events: Sequence[EventData], target: StreamValue, later: StreamValue, properties: Properties | None
) -> list[list[EventData]]:
    """Return the events in stretches that fit into a transaction, each as long as possible.

    Where they are split depends only on what is given, not on what is stored: a write that is repeated is split alike.
    """
    kept = _header_bytes(later, None, keep=True)
    header = max(kept, _header_bytes(target, None))
    parts: list[list[EventData]] = [[]]
    count, size = 1, header
    for event in events:
        operations = event_operations(later.partition, later.version, [event])
        operations.extend([include.operation() for include in event.includes])
        event_bytes = sum(_sent_bytes(later, operation) for operation in operations)
        if parts[-1] and (
            count + len(operations) > MAX_OPERATIONS or size + event_bytes > MAX_TRANSACTION_BYTES
        ):
            parts.append([])
            header, count, size = kept, 1, kept
        parts[-1].append(event)
        count += len(operations)
        size += event_bytes
    if properties is not None and len(parts[-1]) > 1:
        size += _header_bytes(later, properties) - header
        if size > MAX_TRANSACTION_BYTES:
            parts.append([parts[-1].pop()])
    return parts


def _header_bytes(stream: StreamValue, properties: Properties | None, *, keep: bool = False) -> int:
    operation = header_operation(stream, MAX_STREAM_VERSION, properties, keep=keep)
    return AROUND_ALL_BYTES + _sent_bytes(stream, operation)


def _sent_bytes(stream: StreamValue, operation: Operation) -> int:
    properties, _ = prepare_row(operation.properties)
    return operation_size(stream.partition.key, MAX_OPERATIONS - 1, operation, properties)


def _position_after(result: StreamWriteResult[StreamT]) -> tuple[StreamT, int | None]:
    """Return where the next part goes: on the stream as it is, or, when that is further on, on the last event."""
    last = result.events[-1].version
    return result.stream, None if result.stream.version == last else last


def _has_unknown_outcome(error: EventStoreError) -> bool:
    return isinstance(error, StoreUnavailableError) and error.outcome_unknown
