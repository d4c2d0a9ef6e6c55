"""Packing: new versions become a segment of the tail or, when they are many or large, runs.

Whether a transaction is full is decided here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from eventstore import EventData
from runtime.messages.deliveries import Deliveries
from runtime.messages.message_ids import IdKey, pack_ids
from runtime.storage import limits
from runtime.storage.columns import StateVersion
from runtime.storage.head import Head
from runtime.storage.history import NewestState
from runtime.storage.new_versions import Made, MadeColumns, columns_of
from runtime.storage.run import Commit, Run
from runtime.storage.segment import Segment
from runtime.storage.tail import Tail


class PackedRun(NamedTuple):
    """A run as it will be stored: its event, the ids to be indexed, and how many bytes it takes as sent."""

    first: int
    last: int
    event: EventData
    ids: Sequence[IdKey]
    size: int


class Room(NamedTuple):
    """How many versions may be added, up to the one with which they take `size` bytes raw or more."""

    versions: int
    size: int


class Packed(NamedTuple):
    """Versions up to number `last` as one transaction stores them: the tail after it, and the runs it adds."""

    last: int
    tail: Tail | None
    runs: Sequence[PackedRun]


class Packer:
    """Packs the versions that follow a `head` and its `newest` state, which some `deliveries` make in one batch.

    The versions added since a run was last closed are open: from index `_begin` on, taking `_open_bytes` raw. `is_full`
    says that what is packed may leave no room for another run, or takes too much memory.
    """

    def __init__(
        self, deliveries: Deliveries, head: Head, newest: NewestState, batch: str | None, number: int | None
    ) -> None:
        self._deliveries = deliveries
        self._tail = head.tail
        self._first = head.versions + 1
        self._made = MadeColumns()
        self._states = [newest.encoded]
        self._schema = newest.schema
        self._batch = batch
        self._number = number
        self._begin = 0
        self._open_bytes = 0
        self._closed_bytes = 0
        self._runs: list[PackedRun] = []
        self._bytes = 0
        self._largest = 0
        self.is_full = False

    def room(self) -> Room:
        """Return how much may be added at once; closes a run that takes no more."""
        open_ = len(self._made) - self._begin
        if open_ >= limits.MAX_RUN_VERSIONS or self._open_bytes >= limits.MAX_RUN_RAW_BYTES:
            self._close(self._made.nows[-1])
            open_ = 0
        in_run = limits.MAX_RUN_RAW_BYTES - self._open_bytes
        in_memory = limits.MAX_TRANSACTION_RAW_BYTES - self._closed_bytes - self._open_bytes
        return Room(0 if self.is_full else limits.MAX_RUN_VERSIONS - open_, min(in_run, in_memory))

    def extend(self, made: MadeColumns, afters: Sequence[bytes], size: int) -> None:
        """Add the next versions, with the encoded states after them; together they take `size` bytes raw."""
        self._made.extend(made)
        self._states += afters
        self._open_bytes += size
        if self._closed_bytes + self._open_bytes >= limits.MAX_TRANSACTION_RAW_BYTES:
            self.is_full = True

    def version(self, index: int) -> tuple[StateVersion, bytes, bytes]:
        """Return the version at an index, from 0, with the encoded states before and after it."""
        before, after = states = self._states[index : index + 2]
        (record,) = columns_of(self._deliveries, self._made[index : index + 1], states)
        return record, before, after

    def made(self, index: int) -> Made:
        """Return what a handler made, of the version at an index."""
        return self._made[index]

    def after(self, index: int) -> bytes:
        """Return the encoded state after the version at an index."""
        return self._states[index + 1]

    def pack(self, written_at: int) -> Packed:
        """Return the longest prefix of the versions that one transaction stores, beside the tail that is there.

        A tail without room becomes a run before them.
        """
        tail = self._tail
        segment = self._segment(written_at)
        if segment is None:
            if self._begin < len(self._made):
                self._close(written_at)
            runs = self._fitting()
            return Packed(runs[-1].last, None, [*_as_run(tail), *runs])
        last = self._first + segment.length - 1
        if tail is not None and tail.takes(segment, self._schema):
            return Packed(last, tail.plus(segment), ())
        return Packed(last, Tail(self._first, self._schema, self._states[0]).plus(segment), _as_run(tail))

    def _segment(self, written_at: int) -> Segment | None:
        """Return the versions as a segment of the tail, None when they are too many or too large for it."""
        count, before, after = len(self._made), self._states[0], self._states[-1]
        if (
            self._runs
            or count > limits.MAX_SEGMENT_VERSIONS
            or max(len(before), len(after)) > limits.MAX_HEAD_STATE_BYTES
            or self._open_bytes > limits.MAX_TAIL_RAW_BYTES
        ):
            return None
        commit = Commit(count, self._batch, written_at, self._number)
        versions = columns_of(self._deliveries, self._made, self._states)
        segment = Segment.of(versions, self._schema, before, commit)
        return segment if segment.size <= limits.MAX_SEGMENT_BYTES else None

    def _close(self, written_at: int) -> None:
        """Turn the open versions into events."""
        begin, before = self._begin, self._states[self._begin]
        versions = columns_of(self._deliveries, self._made[begin:], self._states[begin:])
        commit = Commit(len(versions), self._batch, written_at, self._number)
        for packed in _split(Run(self._first + begin, self._schema, before, versions, [commit])):
            self._runs.append(packed)
            self._bytes += packed.size
            self._largest = max(self._largest, packed.size)
        self._begin = len(self._made)
        self._closed_bytes += self._open_bytes
        self._open_bytes = 0
        self.is_full = (
            self._bytes + self._largest > limits.MAX_TRANSACTION_BYTES
            or len(self._runs) >= limits.MAX_TRANSACTION_RUNS
        )

    def _fitting(self) -> list[PackedRun]:
        """Return the first runs, as many as a transaction holds: at least one."""
        fitting, room = self._runs[:1], limits.MAX_TRANSACTION_BYTES - self._runs[0].size
        for run in self._runs[1 : limits.MAX_TRANSACTION_RUNS]:
            room -= run.size
            if room < 0:
                break
            fitting.append(run)
        return fitting


def _as_run(tail: Tail | None) -> list[PackedRun]:
    """Return a tail that is given up as the run that takes its place."""
    return [] if tail is None else [_packed(tail.run())]


def _split(run: Run) -> list[PackedRun]:
    """Return a run as it will be stored, in several when it is too large for one."""
    data, versions = run.data(), run.versions
    fits = len(data) <= limits.MAX_RUN_DATA_BYTES and len(pack_ids(run.ids)) <= limits.MAX_RUN_ID_BYTES
    if fits or len(versions) == 1:
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
    return PackedRun(run.first, run.last, event, run.ids, _size(event))


def _size(event: EventData) -> int:
    """Return the bytes that an event and its place in the index take in a transaction, where binary is base64."""
    data = sum(len(value) for value in event.properties.values() if isinstance(value, bytes))
    data += limits.HASH_BYTES * int(event.properties["Count"])  # type: ignore[arg-type] # it was written as a number
    return data * 4 // 3 + limits.ROW_OVERHEAD
