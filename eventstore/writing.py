"""Appends events, truncates streams, and deletes streams.

A write that exceeds a limit is refused before any I/O. An idempotent write that was refused, or whose outcome is
unknown, looks for its own events: the same ids at the same versions with the same bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from eventstore import errors, header, limits, reading
from eventstore.errors import ConcurrencyConflictError, DuplicateEventError, StoreUnavailableError
from eventstore.header import EVENT_ID, VERSION, EventData, Include, Partition, StreamT, StreamValue
from eventstore.port import Operation, Properties, Row, Value, pause
from eventstore.reading import EVERYTHING, Reader, StreamWriteResult, read_header, read_ids, with_watermark

ANY_ATTEMPTS = 32  # how often a write that accepts any version is tried during concurrent writes
_STREAM_ROW = re.compile(r"(.*\|)?SS-(HEAD$|SE-|UID-)", re.DOTALL)


class ExpectedVersion(Enum):
    """The expected state of a stream, as an alternative to its version.

    `ANY`: the stream may exist or not. `EXISTS`: it exists. `EMPTY`: it exists and has no events. `NO_STREAM`: it does
    not exist, the same as version 0.
    """

    ANY = "any"
    NO_STREAM = "no stream"
    EMPTY = "empty"
    EXISTS = "exists"

    @property
    def is_open(self) -> bool:
        """Whether the expectation may hold even after another writer's change. If so, a conflict leads to a retry."""
        return self in (ExpectedVersion.ANY, ExpectedVersion.EXISTS)


Expected = int | ExpectedVersion | None
"""An expected version or state; None if the target is a stream, whose version is expected."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The content of one write: events, included rows, and the stream's new properties, None if they do not change."""

    events: Sequence[EventData]
    includes: tuple[Include, ...]
    properties: Properties | None
    keep: bool = False
    """Whether the stream's properties are known to be stored."""

    @classmethod
    def of(
        cls,
        events: Sequence[EventData],
        includes: Iterable[Include] = (),
        properties: Mapping[str, Value | None] | None = None,
    ) -> Draft:
        """Return the draft of a write. Raises `ValueError` or `TypeError` for invalid arguments."""
        if not events:
            raise ValueError("A write needs at least one event.")
        for event in events:
            if not isinstance(event, EventData):
                kind = type(event).__name__
                raise TypeError(f"An event to write is a {kind}: give EventData, or *events for a list.")
        own = None if properties is None else header.stream_properties(properties)
        return cls(events, all_includes(events, includes), own)

    def operations(self, stream: StreamValue) -> list[Operation]:
        """Return the operations for header, events, ids and includes. Raises `DuplicateEventError` for equal ids."""
        partition, last = stream.partition, stream.version + len(self.events)
        operations = [header.header_operation(stream, last, self.properties, keep=self.keep)]
        ids: set[str] = set()
        for version, event in enumerate(self.events, stream.version + 1):
            row = {VERSION: version, **event.properties}
            operations.append(Operation.insert(partition.event(version), row))
            if event.id is None:
                continue
            event_id = event.id.value
            if event_id in ids:
                raise DuplicateEventError(str(partition), event_id)
            ids.add(event_id)
            operations.append(Operation.insert(partition.event_id(event_id), {VERSION: version}))
        return [*operations, *self.includes]


def all_includes(events: Sequence[EventData], includes: Iterable[Include]) -> tuple[Include, ...]:
    """Return all includes of a write, combined into one per row.

    Raises `ValueError` for a row that belongs to a stream: a header, event or event id.
    """
    all_ = (*[include for event in events for include in event.includes], *includes)
    for include in all_:
        if _STREAM_ROW.match(include.row_key):
            raise ValueError(f"The row {include.row_key!r} belongs to a stream and cannot be included.")
    return header.combine(all_) if all_ else ()


async def transact(partition: Partition, operations: Sequence[Operation]) -> tuple[str, ...]:
    """Run operations, the header's first, in one transaction. Return the new ETags.

    Raises `ConcurrencyConflictError`, `DuplicateEventError` or `IncludeConflictError` if an operation is refused.
    """
    try:
        return await partition.table.transact(partition.key, operations)
    except errors.RowError as error:
        stream, row_key, prefix = str(partition), error.row_key, partition.prefix
        if error.index == 0:
            raise ConcurrencyConflictError(stream, f"its header {error.detail}") from error
        if row_key.startswith(prefix + EVENT_ID) and isinstance(error, errors.RowExistsError):
            raise DuplicateEventError(stream, row_key[len(prefix) + len(EVENT_ID) :]) from error
        if row_key.startswith((prefix + header.EVENT, prefix + EVENT_ID)):
            raise ConcurrencyConflictError(stream, f"its row {row_key!r} {error.detail}") from error
        raise errors.IncludeConflictError(stream, row_key, error.detail) from error


async def set_properties(stream: StreamT, own: Properties, includes: Iterable[Include]) -> StreamT:
    """Set a stream's properties to `own`, and apply `includes`. Return the new stream. Raises as `transact` does."""
    head = header.header_operation(stream, stream.version, own)
    (etag, *_) = await transact(stream.partition, [head, *all_includes((), includes)])
    return header.stream_written(stream, etag, stream.version, own)


async def append(draft: Draft, target: StreamT, expected: Expected) -> StreamWriteResult[StreamT]:
    """Append to the stream as last read or, with `expected`, to the current stream. Raises as `Stream.write` does."""
    if expected is None:
        return await _append_to(draft, target)
    # A write that can never fit costs no request.
    limits.prepare(target.partition.key, draft.operations(target))
    draft = replace(draft, keep=True)
    attempts = ANY_ATTEMPTS if isinstance(expected, ExpectedVersion) and expected.is_open else 1
    failures = 0
    while True:
        stream = await _expected_stream(target, expected)
        try:
            return await _append_to(draft, stream)
        except ConcurrencyConflictError:
            failures += 1
            if failures == attempts:
                raise
        await pause(target.partition.table, failures)


async def _append_to(draft: Draft, stream: StreamT) -> StreamWriteResult[StreamT]:
    if draft.properties is not None:
        stream = await with_watermark(stream)
    etags = await transact(stream.partition, draft.operations(stream))
    position = 1
    recorded: list[header.RecordedEvent] = []
    for version, event in enumerate(draft.events, stream.version + 1):
        recorded.append(header.RecordedEvent(version, event.properties, event.id, etag=etags[position]))
        position += 1 if event.id is None else 2
    includes = [
        replace(include, etag=etag) for include, etag in zip(draft.includes, etags[position:], strict=True)
    ]
    written = header.stream_written(stream, etags[0], stream.version + len(draft.events), draft.properties)
    return StreamWriteResult(written, tuple(recorded), tuple(includes))


async def _expected_stream(blank: StreamT, expected: int | ExpectedVersion) -> StreamT:
    """Return the stream to write to. Costs one request, or none if the stream should not exist: the write checks this.

    Raises `ConcurrencyConflictError` if the expectation does not hold.
    """
    if expected in (0, ExpectedVersion.NO_STREAM):
        return blank
    stream = await read_header(blank)
    if expected is ExpectedVersion.ANY:
        return stream or blank
    name = str(blank.partition)
    if stream is None:
        words = "a stream" if isinstance(expected, ExpectedVersion) else f"version {expected}"
        raise ConcurrencyConflictError(name, f"it does not exist, but {words} was expected")
    if expected is ExpectedVersion.EXISTS:
        return stream
    version = 0 if expected is ExpectedVersion.EMPTY else expected
    if stream.version != version:
        raise ConcurrencyConflictError(name, f"it is at version {stream.version}, and {version} was expected")
    return stream


async def append_once(draft: Draft, target: StreamT, expected: Expected) -> StreamWriteResult[StreamT]:
    """Append as `append` does. After a conflict or an unknown outcome, return the events if they are stored already."""
    if any(event.id is None for event in draft.events):
        raise ValueError("An idempotent write needs an id for each event.")
    try:
        return await append(draft, target, expected)
    except (ConcurrencyConflictError, DuplicateEventError, StoreUnavailableError) as error:
        if isinstance(error, StoreUnavailableError) and not error.outcome_unknown:
            raise
        if isinstance(expected, ExpectedVersion):
            before = None if expected.is_open else 0
        else:
            before = target.version if expected is None else expected
        try:
            stored = await _stored(draft.events, target, before)
        except errors.EventStoreError as unread:
            if isinstance(error, StoreUnavailableError):
                raise error from unread  # whether the write was committed stays unknown
            raise
        if stored is None:
            raise
        return stored


async def _stored(
    events: Sequence[EventData], target: StreamT, before: int | None
) -> StreamWriteResult[StreamT] | None:
    """Return the events if the stream has all of them, one after another, otherwise None.

    If `before` is not None, the events must follow that version.
    """
    partition = target.partition
    first = await _version_of(partition, events[0])
    if first is None or before not in (None, first - 1):
        return None
    for version, event in enumerate(events[1:], first + 1):
        if await _version_of(partition, event) != version:
            return None
    slice_ = await Reader(target, EVERYTHING).forwards(first, len(events))
    stored = slice_.events if slice_ else ()
    if slice_ is None or [event.version for event in stored] != list(range(first, first + len(events))):
        return None
    pairs = list(zip(stored, events, strict=True))
    if not all(same_values(before.properties, event.properties) for before, event in pairs):
        return None
    recorded = tuple([replace(before, id=event.id) for before, event in pairs])
    return StreamWriteResult(slice_.stream, recorded, repeated=True)


async def _version_of(partition: Partition, event: EventData) -> int | None:
    row = await partition.table.get(partition.key, partition.event_id(str(event.id)))
    version = None if row is None else row.properties.get(VERSION)
    return version if isinstance(version, int) else None


def same_values(stored: Properties, given: Properties) -> bool:
    """Return whether stored properties equal, in type and bits, the values that a write stores for the given ones."""

    def bits(value: Value) -> tuple[type, Value]:
        return type(value), struct.pack("<d", value) if isinstance(value, float) else value

    prepared, _ = limits.prepare_row(given)
    return stored.keys() == prepared.keys() and all(
        bits(stored[name]) == bits(value) for name, value in prepared.items()
    )


_CHANGES = limits.MAX_OPERATIONS - 1
_MEASURED_AT_ONCE = 64  # limits memory, since a row may have a megabyte


@dataclass(frozen=True, slots=True)
class CutRows:
    """The rows that a truncation deletes, and their size (`eventstore.limits.row_bytes`)."""

    row_keys: Sequence[str]
    bytes: int


async def rows_to_cut(stream: StreamValue, first_version: int) -> CutRows:
    """Return the rows that would be deleted if the stream were truncated to begin at `first_version`, which is kept.

    Costs two requests if there are at most 64 events to delete, and one more for every 64 events beyond these.
    """
    partition, last = stream.partition, first_version - 1
    row_keys: list[str] = []
    size, first, end = 0, 1, min(last, stream.first_version + _MEASURED_AT_ONCE - 1)
    while True:
        rows = await _event_rows(partition, first, end, None)
        row_keys += [row.row_key for row in rows]
        size += sum(map(limits.row_bytes, rows))
        if end >= last:
            return CutRows(row_keys + await _ids_below(partition, first_version), size)
        first, end = end + 1, min(last, end + _MEASURED_AT_ONCE)


async def _rows_below(partition: Partition, version: int) -> list[str]:
    """Return the row keys of the events before `version` and of their ids, including rows that a crash left behind."""
    events = await _event_rows(partition, 1, version - 1, ())
    return [row.row_key for row in events] + await _ids_below(partition, version)


async def _event_rows(partition: Partition, first: int, last: int, select: tuple[()] | None) -> list[Row]:
    rows = await reading.read_rows(partition, partition.event(first), partition.event(last), select)
    return [row for row in rows if partition.version_of(row.row_key) is not None]


async def _ids_below(partition: Partition, version: int) -> list[str]:
    ids = await read_ids(partition)
    return [partition.event_id(event_id) for of_event, event_id in ids if of_event < version]


async def truncate(
    stream: StreamT,
    first_version: int,
    properties: Properties | None,
    includes: Sequence[Include],
    rows: CutRows | None = None,
) -> StreamT:
    """Delete the events before `first_version`, and return the stream. The first transaction applies `includes`.

    If `properties` is None, the stream keeps its properties. `rows` is the result of `rows_to_cut` for the same
    arguments. If `rows` is None, the rows to delete are looked up.
    """
    partition, etag = stream.partition, stream.etag
    if etag is None:
        raise ValueError("The stream is transient: there is nothing to truncate.")
    mark: dict[str, Value] = {header.FIRST_VERSION: first_version}
    if properties is None:
        head = Operation.merge(partition.header, mark, etag)
    else:
        row = header.header_row(stream.version, first_version, properties)
        head = Operation.replace(partition.header, row, etag)
    limits.prepare(partition.key, [head, *includes])
    stream = await with_watermark(stream)
    if not stream.first_version <= first_version <= stream.version + 1:
        raise ValueError(
            f"The stream has the events {stream.first_version} to {stream.version}: it cannot begin at {first_version}."
        )
    doomed = await _rows_below(partition, first_version) if rows is None else rows.row_keys
    if not doomed and not includes and properties is None and first_version == stream.first_version:
        return stream
    if properties is not None:
        stream = replace(stream, properties=properties, partial=False)
    etag = await _delete(partition, head, mark, doomed, includes)
    return replace(stream, etag=etag, first_version=first_version)


async def delete(target: StreamValue) -> None:
    """Replace the header with a tombstone, then delete all events and ids.

    If `target` has no ETag, its current header is read, and an interrupted deletion is completed.
    """
    partition, etag, version, was_deleted = target.partition, target.etag, target.version, False
    if etag is None:
        row = await partition.table.get(partition.key, partition.header)
        if row is None:
            raise errors.StreamNotFoundError(str(partition))
        etag, version, was_deleted = row.etag, header.versions_of(row)[0], header.is_tombstone(row)
    doomed = await _rows_below(partition, version + 1)
    if doomed or not was_deleted:
        tombstone = {VERSION: version, header.FIRST_VERSION: version + 1, header.TOMBSTONE: True}
        await _delete(partition, Operation.replace(partition.header, tombstone, etag), tombstone, doomed)


async def _delete(
    partition: Partition,
    head: Operation,
    mark: Properties,
    doomed: Sequence[str],
    included: Sequence[Operation] = (),
) -> str:
    """Delete the `doomed` rows in transactions of up to 99 changes. Return the header's last ETag.

    The first transaction also runs `head`, which changes the header, and the `included` operations. Later
    transactions merge `mark` into the header.
    """
    deletions = [Operation.delete(row_key) for row_key in doomed]
    room = _CHANGES - len(included)
    if included:
        try:
            limits.prepare(partition.key, [head, *included, *deletions[:room]])
        except errors.PayloadTooLargeError:
            room = 0  # large includes need the whole transaction
    # The first transaction marks the events as deleted, so after a crash the stream is readable, and repeating the call
    # deletes the rest.
    (etag, *_) = await transact(partition, [head, *included, *deletions[:room]])
    for start in range(room, len(deletions), _CHANGES):
        head = Operation.merge(partition.header, mark, etag)
        (etag, *_) = await transact(partition, [head, *deletions[start : start + _CHANGES]])
    return etag
