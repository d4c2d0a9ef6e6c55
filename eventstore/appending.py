"""Appending events to a stream: one transaction, on the version that the caller expects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from eventstore.backoff import pause
from eventstore.errors import ConcurrencyConflictError, DuplicateEventError, StoreUnavailableError
from eventstore.events import EventData
from eventstore.expected_version import ExpectedVersion
from eventstore.header import header_operation, stream_written
from eventstore.includes import Include
from eventstore.limits import prepare
from eventstore.port import Operation, Properties, Value
from eventstore.properties import stream_properties
from eventstore.reading import read_header, with_watermark
from eventstore.recognition import recorded_before
from eventstore.results import StreamWriteResult
from eventstore.stream_value import StreamT, StreamValue
from eventstore.writing import all_includes, event_operations, recorded, transact, with_etags

ANY_ATTEMPTS = 32
"""How often a write on whatever version there is is tried while others write to the stream."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What one write adds to a stream: events, changes of other rows, and new properties if they are given.

    `keep` says that the properties of the value it is written with are known to be stored already.
    """

    events: Sequence[EventData]
    includes: tuple[Include, ...]
    properties: Properties | None
    keep: bool = False

    @classmethod
    def of(
        cls,
        events: Sequence[EventData],
        includes: Iterable[Include] = (),
        properties: Mapping[str, Value | None] | None = None,
    ) -> Draft:
        """Take what a caller gives. Raises `ValueError` when it cannot be one write."""
        if not events:
            raise ValueError("A write needs at least one event.")
        for event in events:
            if not isinstance(event, EventData):
                kind = type(event).__name__
                raise TypeError(
                    f"An event to write is a {kind}: give EventData, or *events for a list of them."
                )
        own = None if properties is None else stream_properties(properties)
        return cls(events, all_includes(events, includes), own)

    def operations(self, stream: StreamValue) -> list[Operation]:
        """Return the transaction that writes to a stream: header, events with their ids, included rows.

        Raises `DuplicateEventError` when two of the events have one id.
        """
        version = stream.version
        header = header_operation(stream, version + len(self.events), self.properties, keep=self.keep)
        events = event_operations(stream.partition, version, self.events)
        return [header, *events, *[include.operation() for include in self.includes]]

    def check(self, stream: StreamValue) -> None:
        """Raise the error of a write that the stream could not take: `PayloadTooLargeError`, or a wrong value."""
        prepare(stream.partition.key, self.operations(stream))


async def append(
    draft: Draft, target: StreamT, expected: int | ExpectedVersion | None
) -> StreamWriteResult[StreamT]:
    """Write to a stream as it was read, or, given what is expected of it, as it is now.

    Raises `ConcurrencyConflictError`, else `DuplicateEventError`, else `IncludeConflictError`.
    """
    if expected is None:
        return await _append_to(draft, target)
    draft.check(target)
    draft = replace(draft, keep=True)
    attempts = ANY_ATTEMPTS if isinstance(expected, ExpectedVersion) and expected.is_open else 1
    for failures in range(1, attempts):
        stream = await _expected_stream(target, expected)
        try:
            return await _append_to(draft, stream)
        except ConcurrencyConflictError:
            await pause(target.partition.table, failures)
    return await _append_to(draft, await _expected_stream(target, expected))


async def append_once(
    draft: Draft, target: StreamT, expected: int | ExpectedVersion | None
) -> StreamWriteResult[StreamT]:
    """Write unless the very same events, ids and bytes, stand where they would be written.

    A refused write, and one whose outcome is unknown, is looked up in the stream.
    """
    if any(event.id is None for event in draft.events):
        raise ValueError("An event without an id cannot be recognised: an idempotent write needs all ids.")
    failure: ConcurrencyConflictError | DuplicateEventError | StoreUnavailableError
    try:
        return await append(draft, target, expected)
    except (ConcurrencyConflictError, DuplicateEventError) as error:
        failure = error
    except StoreUnavailableError as error:
        if not error.outcome_unknown:
            raise
        failure = error
    found = await recorded_before(target, draft.events, first_version(target, expected))
    if found is None:
        raise failure
    return found


def first_version(target: StreamValue, expected: int | ExpectedVersion | None) -> int | None:
    """Return the version that the first event is to have, None for any."""
    if expected is None:
        return target.version + 1
    if isinstance(expected, ExpectedVersion):
        return None if expected.is_open else 1
    return expected + 1


async def _append_to(draft: Draft, stream: StreamT) -> StreamWriteResult[StreamT]:
    if draft.properties is not None:
        stream = await with_watermark(stream)
    etags = await transact(stream.partition, draft.operations(stream))
    written = stream_written(stream, etags[0], stream.version + len(draft.events), draft.properties)
    return StreamWriteResult(
        written, recorded(stream.version, draft.events, etags), with_etags(draft.includes, etags)
    )


async def _expected_stream(blank: StreamT, expected: int | ExpectedVersion) -> StreamT:
    """Return the stream to write to. Raises `ConcurrencyConflictError` when it is not as expected.

    Costs a request, unless the stream is expected not to be there: the write itself sees to that.
    """
    if expected in (0, ExpectedVersion.NO_STREAM):
        return blank
    stream = await read_header(blank)
    if expected is ExpectedVersion.ANY:
        return stream or blank
    if stream is None:
        raise ConcurrencyConflictError(
            str(blank.partition), f"it does not exist, {_words(expected)} was expected"
        )
    if expected is ExpectedVersion.EXISTS:
        return stream
    version = 0 if isinstance(expected, ExpectedVersion) else expected
    if stream.version != version:
        detail = f"it is at version {stream.version}, version {version} was expected"
        raise ConcurrencyConflictError(str(blank.partition), detail)
    return stream


def _words(expected: int | ExpectedVersion) -> str:
    return "a stream" if isinstance(expected, ExpectedVersion) else f"version {expected}"
