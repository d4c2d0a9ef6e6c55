"""Writing more events than one transaction takes, one transaction after the other.

All parts are checked before the first is sent. Each is atomic, all of them together are not: a reader sees the
parts appear, and a failure leaves those before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from eventstore.appending import Draft, append, append_once, first_version
from eventstore.errors import EventStoreError, PartialWriteError, StoreUnavailableError
from eventstore.events import EventData
from eventstore.expected_version import ExpectedVersion
from eventstore.header import header_operation
from eventstore.limits import MAX_OPERATIONS, MAX_TRANSACTION_BYTES, prepare_row
from eventstore.port import Operation, Properties
from eventstore.results import StreamWriteResult
from eventstore.sent_size import sent_size
from eventstore.stream_value import StreamT, StreamValue
from eventstore.writing import event_operations


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
    """Return the parts, each of them checked."""
    # Sees an id that stands twice, in whatever parts.
    event_operations(target.partition, target.version, events)
    drafts = [Draft.of(part) for part in _split(target, events, properties)]
    drafts[-1] = replace(drafts[-1], properties=properties)
    included: set[str] = set()
    for draft in drafts:
        draft.check(target)
        for include in draft.includes:
            if include.row_key in included:
                raise ValueError(
                    f"The row {include.row_key!r} is changed by events of different parts; put those into one write."
                )
            included.add(include.row_key)
    return drafts


def _split(
    target: StreamValue, events: Sequence[EventData], properties: Properties | None
) -> Iterator[list[EventData]]:
    """Give the events in stretches that fit into a transaction, each as long as possible."""
    headers = [header_operation(target, target.version, own) for own in (None, properties)]
    header_bytes = max(_sent_bytes(target, [header]) for header in headers)
    part: list[EventData] = []
    count, size = 1, header_bytes
    for event in events:
        operations = event_operations(target.partition, target.version, [event])
        operations.extend([include.operation() for include in event.includes])
        event_bytes = _sent_bytes(target, operations)
        if part and (count + len(operations) > MAX_OPERATIONS or size + event_bytes > MAX_TRANSACTION_BYTES):
            yield part
            part, count, size = [], 1, header_bytes
        part.append(event)
        count += len(operations)
        size += event_bytes
    yield part


def _sent_bytes(target: StreamValue, operations: Sequence[Operation]) -> int:
    prepared = [prepare_row(operation.properties)[0] for operation in operations]
    return sent_size(target.partition.key, operations, prepared)


def _position_after(result: StreamWriteResult[StreamT]) -> tuple[StreamT, int | None]:
    """Return where the next part goes: on the stream as it is, or, when that is further on, on the last event."""
    last = result.events[-1].version
    return result.stream, None if result.stream.version == last else last


def _has_unknown_outcome(error: EventStoreError) -> bool:
    return isinstance(error, StoreUnavailableError) and error.outcome_unknown
