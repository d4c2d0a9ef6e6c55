"""Pack new versions: as many as fit one transaction, into a segment of the tail or into runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from eventstore import EventData
from handlers import Published
from runtime.messages import envelope
from runtime.messages.envelope import Columnar, IdKey, pack_ids
from runtime.messages.parsing import Deliveries
from runtime.versions import limits
from runtime.versions.head import Head, NewestState, Segment, Tail
from runtime.versions.run import Commit, Run, StateVersion, VersionColumns


class Made(NamedTuple):
    """The result of one handler call, except the state."""

    position: int  # of the delivery
    now: int
    revision: int
    captured: Mapping[str, bytes] | None
    published: Sequence[Published]


@dataclass(slots=True)
class MadeColumns(Columnar[Made]):
    """Results of handler calls by column: each list holds one field of `Made`."""

    row = Made

    positions: list[int] = field(default_factory=list)
    nows: list[int] = field(default_factory=list)
    revisions: list[int] = field(default_factory=list)
    captured: list[Mapping[str, bytes] | None] = field(default_factory=list)
    published: list[Sequence[Published]] = field(default_factory=list)


def version_columns(deliveries: Deliveries, made: MadeColumns, states: Sequence[bytes]) -> VersionColumns:
    """Return the records of consecutive versions. `states` has the encoded state before the first, and after each."""
    envelopes, positions = deliveries.envelopes, made.positions
    return VersionColumns(
        _at(positions, deliveries.keys),
        _at(positions, envelopes.types),
        _at(positions, deliveries.fingerprints),
        list(made.nows),
        _at(positions, envelopes.enqueued_at),
        [envelope.without_trace(dict(each)) if each else None for each in _at(positions, envelopes.headers)],
        list(made.captured),
        list(made.revisions),
        list(map(envelope.digest_outputs, made.published)),
        list(map(envelope.digest_state, states[1:])),
        [None if after == before else after for before, after in pairwise(states)],
    )


def _at(positions: Sequence[int], column: Sequence[Any]) -> list[Any]:
    # The positions are nearly always contiguous, and a slice is fastest.
    first, last = positions[0], positions[-1]
    if last - first + 1 == len(positions):
        return list(column[first : last + 1])
    return [column[position] for position in positions]


class PackedRun(NamedTuple):
    """An encoded run."""

    first: int
    last: int
    event: EventData
    ids: Sequence[IdKey]
    size: int  # in the request, in bytes


class Packed(NamedTuple):
    """The new versions that one transaction stores."""

    head: Head  # of the stream after the transaction
    runs: Sequence[PackedRun]


Batch = str | Callable[[Sequence[int]], str] | None
"""The batch of versions, or a function that returns it, given the negative indexes of the versions' deliveries."""


class Packer:
    """Packs new versions into a segment or runs, until a transaction is full. Versions not yet in a run are *open*."""

    def __init__(
        self, deliveries: Deliveries, head: Head, newest: NewestState, batch: Batch, number: int | None
    ) -> None:
        self._deliveries = deliveries
        self._head = head
        self._first = head.versions + 1
        self.made = MadeColumns()
        self.states = [newest.encoded]  # before the first version, and after each
        self._schema = newest.schema
        self._batch = batch
        self._number = number
        self._begin = 0  # the index of the first open version
        self._open_bytes = 0
        self._closed_bytes = 0
        self._runs: list[PackedRun] = []
        self.is_full = False  # whether the transaction may not have room for another run, or memory is short

    def room(self) -> tuple[int, int]:
        """Return how many versions and bytes fit before `room` must be called again. Closes a full run."""
        open_ = len(self.made) - self._begin
        if open_ >= limits.MAX_RUN_VERSIONS or self._open_bytes >= limits.MAX_RUN_RAW_BYTES:
            self._close(self.made.nows[-1])
            open_ = 0
        in_run = limits.MAX_RUN_RAW_BYTES - self._open_bytes
        in_memory = limits.MAX_TRANSACTION_RAW_BYTES - self._closed_bytes - self._open_bytes
        return 0 if self.is_full else limits.MAX_RUN_VERSIONS - open_, min(in_run, in_memory)

    def extend(self, made: MadeColumns, afters: Sequence[bytes], size: int) -> None:
        """Add versions. `afters` has the encoded state after each. `size` is their total size in uncompressed bytes."""
        self.made.extend(made)
        self.states += afters
        self._open_bytes += size
        if self._closed_bytes + self._open_bytes >= limits.MAX_TRANSACTION_RAW_BYTES:
            self.is_full = True

    def version(self, position: int) -> tuple[StateVersion, bytes, bytes]:
        """Return the record of the new version at `position`, and the encoded states before and after it."""
        before, after = states = self.states[position : position + 2]
        (record,) = version_columns(self._deliveries, self.made[position : position + 1], states)
        return record, before, after

    def pack(self, written_at: int) -> Packed:
        """Pack as many of the new versions, oldest first, as fit in one transaction. A tail without room becomes a run.

        `written_at` is the time of the commit in microseconds since 1970 UTC.
        """
        tail, segment = self._head.tail, self._segment(written_at)
        if segment is not None and tail is not None and tail.takes(segment, self._schema):
            return self._packed(len(self.made), tail.plus(segment), [])
        replaced = [] if tail is None else [packed(tail.run())]
        if segment is not None:
            tail = Tail(self._first, self._schema, self.states[0]).plus(segment)
            return self._packed(len(self.made), tail, replaced)
        if self._begin < len(self.made):
            self._close(written_at)
        runs = self._fitting()
        return self._packed(runs[-1].last + 1 - self._first, None, [*replaced, *runs])

    def _packed(self, count: int, tail: Tail | None, runs: Sequence[PackedRun]) -> Packed:
        head = self._head._replace(
            state=self.states[count],
            schema=self._schema,
            versions=self._head.versions + count,
            last_now=self.made.nows[count - 1],
            tail=tail,
        )
        return Packed(head, runs)

    def _segment(self, written_at: int) -> Segment | None:
        """Return the new versions as one segment, or `None` if they exceed the limits of a segment."""
        count, before, after = len(self.made), self.states[0], self.states[-1]
        if (
            self._runs
            or count > limits.MAX_SEGMENT_VERSIONS
            or max(len(before), len(after)) > limits.MAX_HEAD_STATE_BYTES
            or self._open_bytes > limits.MAX_TAIL_RAW_BYTES
        ):
            return None
        commit = self._commit(0, written_at)
        versions = version_columns(self._deliveries, self.made, self.states)
        segment = Segment.of(versions, self._schema, before, commit)
        return segment if segment.size <= limits.MAX_SEGMENT_BYTES else None

    def _commit(self, begin: int, written_at: int) -> Commit:
        batch, positions = self._batch, self.made.positions[begin:]
        if callable(batch):
            batch = batch([each - len(self._deliveries) for each in positions])
        return Commit(len(positions), batch, written_at, self._number)

    def _close(self, written_at: int) -> None:
        begin, before = self._begin, self.states[self._begin]
        versions = version_columns(self._deliveries, self.made[begin:], self.states[begin:])
        commit = self._commit(begin, written_at)
        self._runs += _split(Run(self._first + begin, self._schema, before, versions, [commit]))
        self._begin = len(self.made)
        self._closed_bytes += self._open_bytes
        self._open_bytes = 0
        sizes = [run.size for run in self._runs]
        is_full = sum(sizes) + max(sizes) > limits.MAX_TRANSACTION_BYTES
        self.is_full = is_full or len(sizes) >= limits.MAX_TRANSACTION_RUNS

    def _fitting(self) -> list[PackedRun]:
        fitting, room = self._runs[:1], limits.MAX_TRANSACTION_BYTES - self._runs[0].size
        for run in self._runs[1 : limits.MAX_TRANSACTION_RUNS]:
            room -= run.size
            if room < 0:
                break
            fitting.append(run)
        return fitting


def _split(run: Run) -> list[PackedRun]:
    data, versions = run.data(), run.versions
    fits = len(data) <= limits.MAX_RUN_DATA_BYTES and len(pack_ids(run.ids)) <= limits.MAX_RUN_ID_BYTES
    if fits or len(versions) == 1:
        return [packed(run, data)]
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


def packed(run: Run, data: bytes | None = None) -> PackedRun:
    """Encode a run, which must fit a row. `data`: its compressed columns, if the caller already has them."""
    event, ids = run.event(data), run.ids
    # The size in the request, including the index. Requests encode bytes in base64.
    size = sum(len(value) for value in event.properties.values() if isinstance(value, bytes))
    size = (size + limits.HASH_BYTES * len(ids)) * 4 // 3 + limits.ROW_OVERHEAD
    return PackedRun(run.first, run.last, event, ids, size)
