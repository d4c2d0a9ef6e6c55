"""A part: the versions that will be stored in one transaction, and the outcomes that depend on them.

A few versions become a segment of the stream's tail, more become runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from eventstore import EventData
from handlers import State
from runtime.messages.message_ids import IdKey
from runtime.messages.outcome import Outcome
from runtime.storage.columns import StateVersion
from runtime.storage.head import Head
from runtime.storage.id_index import MAX_PRINTS, PRINT_BYTES, IndexedRun
from runtime.storage.limits import MAX_HEAD_STATE_BYTES
from runtime.storage.run import (
    MAX_DATA_BYTES,
    MAX_ID_BYTES,
    MAX_RAW_BYTES,
    MAX_VERSIONS,
    Commit,
    Run,
)
from runtime.storage.stream import Append, KnownVersion
from runtime.storage.tail import MAX_BYTES as MAX_TAIL_BYTES
from runtime.storage.tail import MAX_RAW_BYTES as MAX_TAIL_RAW_BYTES
from runtime.storage.tail import MAX_SEGMENT_VERSIONS, Segment

_INDEX_BYTES = 2 * MAX_PRINTS * PRINT_BYTES * 4 // 3
"""What the index row that new runs are merged into takes at most, as sent: prints, and the ends of runs."""

_TRANSACTION_BYTES = 4 * 2**20 - 256 * 2**10 - _INDEX_BYTES
_TRANSACTION_EVENTS = 48
_PART_RAW_BYTES = 64 * 2**20
"""How many bytes before compression a part keeps in memory."""

_ROW_OVERHEAD = 12 * 2**10
"""What a row takes beside its bytes: the longest key, twice and escaped as it is sent, and its properties' names."""

_LONGEST_ID = 1024
_ID_OVERHEAD = 4


class _Closed(NamedTuple):
    """A run that will be stored: its event, the number of its last version, its size as sent, and what is indexed."""

    event: EventData
    last: int
    size: int
    indexed: IndexedRun


@dataclass(slots=True)
class Part:
    """Folds new versions into runs until a transaction is full.

    `state` is the newest state and `before` its encoded bytes; `number` the newest version's number; `fresh` the
    versions made since the stream was loaded, by message.
    """

    head: Head
    state: State
    before: bytes
    number: int
    last_now: int
    schema: int
    batch: str | None
    fresh: dict[IdKey, KnownVersion] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    _bytes: int = 0
    _run_state: bytes = b""
    _open: list[StateVersion] = field(default_factory=list)
    _open_bytes: int = 0
    _raw_bytes: int = 0
    _id_bytes: int = 0
    _closed: list[_Closed] = field(default_factory=list)
    _outcome_of: list[int] = field(default_factory=list)
    _largest: int = 0

    @property
    def is_full(self) -> bool:
        """Whether what is closed may leave no room for another run, or takes too much memory."""
        return (
            self._bytes + self._largest > _TRANSACTION_BYTES
            or len(self._closed) >= _TRANSACTION_EVENTS
            or self._raw_bytes >= _PART_RAW_BYTES
        )

    def add(self, version: StateVersion, size: int, state: State, after: bytes) -> None:
        """Add the version that the next outcome belongs to, of this raw size, and make its state the newest."""
        if not self._open:
            self._run_state = self.before
        self.number += 1
        self.last_now = version.now
        self.fresh[version.message_id] = KnownVersion(
            self.number, version, self.before, after, self.schema, self.batch
        )
        self._open.append(version)
        self._open_bytes += size
        self._raw_bytes += size
        key = version.message_id
        self._id_bytes += len(key) * (1 if isinstance(key, bytes) else 4) + _ID_OVERHEAD
        self._outcome_of.append(len(self.outcomes))
        self.state, self.before = state, after

    def close_full_run(self, written_at: int) -> None:
        """Close the open run when it has reached a limit."""
        if (
            len(self._open) >= MAX_VERSIONS
            or self._open_bytes >= MAX_RAW_BYTES
            or self._id_bytes >= MAX_ID_BYTES - _LONGEST_ID
        ):
            self.close_run(written_at)

    def close_run(self, written_at: int) -> None:
        """Turn the open versions into events."""
        if not self._open:
            return
        commit = Commit(len(self._open), self.batch, written_at)
        run = Run(self.number - commit.length + 1, self.schema, self._run_state, self._open, [commit])
        for event, piece in _events(run):
            size = _size(event)
            self._closed.append(_Closed(event, piece.last, size, IndexedRun.of(piece)))
            self._bytes += size
            self._largest = max(self._largest, size)
        self._open, self._open_bytes, self._id_bytes = [], 0, 0

    def finish(self, written_at: int) -> Append | None:
        """Return what one transaction stores, None when there is nothing; forget what does not fit in it.

        The outcomes that remain are those up to the first version that is left out.
        """
        segment = self._segment(written_at)
        if segment is not None:
            first = self.number - segment.length + 1
            return Append(self._head(), segment=segment, first=first, before=self._run_state)
        self.close_run(written_at)
        total, count = 0, 0
        for closed in self._closed[:_TRANSACTION_EVENTS]:
            if total + closed.size > _TRANSACTION_BYTES:
                break
            total += closed.size
            count += 1
        if count < len(self._closed):
            self._cut(count)
        if not self._closed:
            return None
        runs = [closed.indexed for closed in self._closed]
        return Append(self._head(), runs, [closed.event for closed in self._closed])

    def _head(self) -> Head:
        return replace(
            self.head, state=self.before, schema=self.schema, versions=self.number, last_now=self.last_now
        )

    def _segment(self, written_at: int) -> Segment | None:
        """Return the new versions as a segment of the tail, None when they are too many or too large for it."""
        if (
            self._closed
            or not 0 < len(self._open) <= MAX_SEGMENT_VERSIONS
            or max(len(self._run_state), len(self.before)) > MAX_HEAD_STATE_BYTES
            or self._open_bytes > MAX_TAIL_RAW_BYTES
        ):
            return None
        segment = Segment.of(
            self._open, self.schema, self._run_state, Commit(len(self._open), self.batch, written_at)
        )
        return segment if segment.size <= MAX_TAIL_BYTES else None

    def _cut(self, count: int) -> None:
        first_left_out = self._closed[count - 1].last + 1
        made = self.number - len(self._outcome_of)
        del self.outcomes[self._outcome_of[first_left_out - made - 1] :]
        del self._closed[count:]
        for key in [key for key, known in self.fresh.items() if known.number >= first_left_out]:
            if self.fresh[key].number == first_left_out:
                self.before = self.fresh[key].before
            del self.fresh[key]
        self.number = first_left_out - 1
        self.last_now = max((known.version.now for known in self.fresh.values()), default=self.head.last_now)


def _events(run: Run) -> list[tuple[EventData, Run]]:
    """Give the events of a run, each with its own versions; more than one when it is too large."""
    data, versions = run.data(), run.versions
    if len(versions) == 1 or len(data) <= MAX_DATA_BYTES:
        return [(run.event(data), run)]
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
    return _events(first) + _events(second)


def _size(event: EventData) -> int:
    """Return the bytes that an event and its place in the index take in a transaction, where binary is base64."""
    data = sum(len(value) for value in event.properties.values() if isinstance(value, bytes))
    data += PRINT_BYTES * int(event.properties["Count"])  # type: ignore[arg-type] # it was written as a number
    return data * 4 // 3 + _ROW_OVERHEAD
