"""A part: the versions that will be stored in one transaction, and the outcomes that depend on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from eventstore import EventData
from handlers import State
from runtime.head import Head
from runtime.message_ids import IdKey
from runtime.outcome import Outcome
from runtime.run import (
    MAX_DATA_BYTES,
    MAX_ID_BYTES,
    MAX_RAW_BYTES,
    MAX_VERSIONS,
    Run,
    StateVersion,
)
from runtime.state_stream import KnownVersion

MAX_STATE_BYTES = 320 * 2**10
"""The largest encoded state: two of them and their context always fit the row of a run."""

_TRANSACTION_BYTES = 4 * 2**20 - 128 * 2**10
_TRANSACTION_EVENTS = 98
_PART_RAW_BYTES = 64 * 2**20
"""How many bytes before compression a part keeps in memory."""

_ROW_OVERHEAD = 12 * 2**10
"""What a row takes beside its bytes: the longest key, twice and escaped as it is sent, and its properties' names."""

_LONGEST_ID = 1024
_ID_OVERHEAD = 4


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
    events: list[EventData] = field(default_factory=list)
    _bytes: int = 0
    _run_state: bytes = b""
    _open: list[StateVersion] = field(default_factory=list)
    _open_bytes: int = 0
    _raw_bytes: int = 0
    _id_bytes: int = 0
    _ends: list[tuple[int, int]] = field(default_factory=list)
    _outcome_of: list[int] = field(default_factory=list)
    _largest: int = 0

    @property
    def is_full(self) -> bool:
        """Whether what is closed may leave no room for another run, or takes too much memory."""
        return (
            self._bytes + self._largest > _TRANSACTION_BYTES
            or len(self.events) >= _TRANSACTION_EVENTS
            or self._raw_bytes >= _PART_RAW_BYTES
        )

    def add(self, version: StateVersion, state: State, after: bytes) -> None:
        """Add the version that the next outcome belongs to, and make its state the newest."""
        if not self._open:
            self._run_state = self.before
        self.number += 1
        self.last_now = version.now
        self.fresh[version.message_id] = KnownVersion(
            self.number, version, self.before, after, self.schema, self.batch
        )
        self._open.append(version)
        size = version.raw_size()
        self._open_bytes += size
        self._raw_bytes += size
        self._id_bytes += (
            len(version.message_id) * (1 if isinstance(version.message_id, bytes) else 4) + _ID_OVERHEAD
        )
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
        first = self.number - len(self._open) + 1
        run = Run(first, self.batch, written_at, self.schema, self._run_state, self._open)
        for event, last in _events(run):
            size = _size(event)
            self.events.append(event)
            self._ends.append((last, size))
            self._bytes += size
            self._largest = max(self._largest, size)
        self._open, self._open_bytes, self._id_bytes = [], 0, 0

    def finish(self, written_at: int) -> tuple[Sequence[EventData], Head]:
        """Return the events of one transaction and the head after them; forget what does not fit in it.

        The outcomes that remain are those up to the first version that is left out.
        """
        self.close_run(written_at)
        total, count = 0, 0
        for _, size in self._ends[:_TRANSACTION_EVENTS]:
            if total + size > _TRANSACTION_BYTES:
                break
            total += size
            count += 1
        if count < len(self.events):
            self._cut(count)
        head = replace(
            self.head, state=self.before, schema=self.schema, versions=self.number, last_now=self.last_now
        )
        return self.events, head

    def _cut(self, count: int) -> None:
        first_left_out = self._ends[count - 1][0] + 1
        made = self.number - len(self._outcome_of)
        del self.outcomes[self._outcome_of[first_left_out - made - 1] :]
        del self.events[count:]
        for key in [key for key, known in self.fresh.items() if known.number >= first_left_out]:
            if self.fresh[key].number == first_left_out:
                self.before = self.fresh[key].before
            del self.fresh[key]
        self.number = first_left_out - 1
        self.last_now = max((known.version.now for known in self.fresh.values()), default=self.head.last_now)


def _events(run: Run) -> list[tuple[EventData, int]]:
    """Give the events of a run with the number of their last version; more than one when it is too large."""
    data, versions = run.data(), run.versions
    if len(versions) == 1 or len(data) <= MAX_DATA_BYTES:
        return [(run.event(data), run.first + len(versions) - 1)]
    middle = len(versions) // 2
    second = replace(
        run, first=run.first + middle, before=run.states_before()[middle], versions=versions[middle:]
    )
    return _events(replace(run, versions=versions[:middle])) + _events(second)


def _size(event: EventData) -> int:
    """Return the bytes that an event takes in a transaction, where binary is sent as base64."""
    data = sum(len(value) for value in event.properties.values() if isinstance(value, bytes))
    return data * 4 // 3 + _ROW_OVERHEAD
