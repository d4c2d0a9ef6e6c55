"""Packing: new versions become a segment of the tail or, when they are many or large, runs.

Whether a transaction is full is decided here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from eventstore import EventData
from runtime.storage import limits
from runtime.storage.columns import StateVersion
from runtime.storage.id_index import IndexedRun
from runtime.storage.run import Commit, Run
from runtime.storage.tail import Segment, Tail


class PackedRun(NamedTuple):
    """A run as it will be stored: its event, what is indexed of it, and how many bytes it takes as sent."""

    first: int
    last: int
    event: EventData
    indexed: IndexedRun
    size: int


class Packed(NamedTuple):
    """Versions up to number `last` as one transaction stores them: the tail after it, and the runs it adds."""

    last: int
    tail: Tail | None
    runs: Sequence[PackedRun]


@dataclass(slots=True)
class _Open:
    """The run that versions are added to, and what they take: raw bytes, and bytes of ids."""

    first: int
    before: bytes
    versions: list[StateVersion]
    raw_bytes: int = 0
    id_bytes: int = 0

    @property
    def is_full(self) -> bool:
        return (
            len(self.versions) >= limits.MAX_RUN_VERSIONS
            or self.raw_bytes >= limits.MAX_RUN_RAW_BYTES
            or self.id_bytes >= limits.MAX_RUN_ID_BYTES - limits.LONGEST_ID
        )


class Packer:
    """Packs the versions that follow version `last`, in one schema version, which one batch writes."""

    def __init__(self, last: int, before: bytes, schema: int, batch: str | None) -> None:
        self._schema = schema
        self._batch = batch
        self._open = _Open(last + 1, before, [])
        self._runs: list[PackedRun] = []
        self._bytes = 0
        self._largest = 0
        self._raw_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether what is packed may leave no room for another run, or takes too much memory."""
        return (
            self._bytes + self._largest > limits.MAX_TRANSACTION_BYTES
            or len(self._runs) >= limits.MAX_TRANSACTION_RUNS
            or self._raw_bytes >= limits.MAX_TRANSACTION_RAW_BYTES
        )

    def add(self, version: StateVersion, size: int, before: bytes) -> None:
        """Add the next version, of this raw size, that was made on an encoded state."""
        if self._open.is_full:
            self._close(version.now)
            self._open = _Open(self._runs[-1].last + 1, before, [])
        run, key = self._open, version.message_id
        run.versions.append(version)
        run.raw_bytes += size
        run.id_bytes += len(key) * (1 if isinstance(key, bytes) else 4) + limits.ID_OVERHEAD
        self._raw_bytes += size

    def pack(self, tail: Tail | None, after: bytes, written_at: int) -> Packed:
        """Return the longest prefix of the versions that one transaction stores, beside the tail that is there.

        `after` is the encoded state after all of them. A tail without room becomes a run before them.
        """
        segment, run = self._segment(after, written_at), self._open
        if segment is None:
            self._close(written_at)
            runs = self._fitting()
            return Packed(runs[-1].last, None, [*_as_run(tail), *runs])
        last = run.first + segment.length - 1
        if tail is not None and tail.takes(segment, self._schema):
            return Packed(last, tail.plus(segment), ())
        return Packed(last, Tail(run.first, self._schema, run.before).plus(segment), _as_run(tail))

    def _segment(self, after: bytes, written_at: int) -> Segment | None:
        """Return the versions as a segment of the tail, None when they are too many or too large for it."""
        run = self._open
        if (
            self._runs
            or len(run.versions) > limits.MAX_SEGMENT_VERSIONS
            or max(len(run.before), len(after)) > limits.MAX_HEAD_STATE_BYTES
            or run.raw_bytes > limits.MAX_TAIL_RAW_BYTES
        ):
            return None
        segment = Segment.of(run.versions, self._schema, run.before, self._commit(written_at))
        return segment if segment.size <= limits.MAX_SEGMENT_BYTES else None

    def _close(self, written_at: int) -> None:
        """Turn the open versions into events."""
        run = self._open
        whole = Run(run.first, self._schema, run.before, run.versions, [self._commit(written_at)])
        for packed in _split(whole):
            self._runs.append(packed)
            self._bytes += packed.size
            self._largest = max(self._largest, packed.size)

    def _fitting(self) -> list[PackedRun]:
        """Return the first runs, as many as a transaction holds: at least one."""
        fitting, room = self._runs[:1], limits.MAX_TRANSACTION_BYTES - self._runs[0].size
        for run in self._runs[1 : limits.MAX_TRANSACTION_RUNS]:
            room -= run.size
            if room < 0:
                break
            fitting.append(run)
        return fitting

    def _commit(self, written_at: int) -> Commit:
        return Commit(len(self._open.versions), self._batch, written_at)


def _as_run(tail: Tail | None) -> list[PackedRun]:
    """Return a tail that is given up as the run that takes its place."""
    return [] if tail is None else [_packed(tail.run())]


def _split(run: Run) -> list[PackedRun]:
    """Return a run as it will be stored, in several when it is too large for one."""
    data, versions = run.data(), run.versions
    if len(versions) == 1 or len(data) <= limits.MAX_RUN_DATA_BYTES:
        return [_packed(run, data)]
    (commit,) = run.commits
    middle = len(versions) // 2
    first = replace(run, versions=versions[:middle], commits=[commit._replace(length=middle)])
    second = replace(
        run,
        first=run.first + middle,
        before=run.states_before()[middle],
        versions=versions[middle:],
        commits=[commit._replace(length=commit.length - middle)],
    )
    return _split(first) + _split(second)


def _packed(run: Run, data: bytes | None = None) -> PackedRun:
    event = run.event(data)
    return PackedRun(run.first, run.last, event, IndexedRun.of(run), _size(event))


def _size(event: EventData) -> int:
    """Return the bytes that an event and its place in the index take in a transaction, where binary is base64."""
    data = sum(len(value) for value in event.properties.values() if isinstance(value, bytes))
    data += limits.HASH_BYTES * int(event.properties["Count"])  # type: ignore[arg-type] # it was written as a number
    return data * 4 // 3 + limits.ROW_OVERHEAD
