"""Random worlds: diaries that batches and single messages write, that are cut and forgotten, with snapshots of all."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st

from eventstore import Table, drive
from runtime.algorithms.state_based.truncation import TruncationChoices, truncate_stream
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import Ledger
from runtime.maintenance.forget import Tables, forget
from runtime.versions import limits
from tests.unit.runtime.diary import misbehave, ponder, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.worker import DAY, HOUR, ToldClock, Worker, stored

DIARIES = ("d-1", "7d444840-9dc0-11d1-b245-5ffdce74fad2", "~ü")

_kinds = st.sampled_from(["write", "write", "write", "ponder", "fail"])
_messages = st.lists(st.tuples(st.sampled_from(DIARIES), _kinds), min_size=1, max_size=12)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), _messages),
        st.tuples(st.just("batch"), _messages),
        st.tuples(st.just("single"), st.sampled_from(DIARIES)),
        st.tuples(st.just("truncate"), st.integers(1, 6)),
        st.tuples(st.just("forget"), st.sampled_from(DIARIES)),
    ),
    min_size=1,
    max_size=10,
)

State = tuple[int, bytes]


@dataclass
class Snapshot:
    """What the newest states were after a step: by diary, the number of the version and the encoded state."""

    moment: int
    batch: str | None
    states: dict[str, State]


@dataclass
class World:
    """A table, and what was seen of it while it was written."""

    table: Table
    clock: ToldClock = field(default_factory=ToldClock)
    snapshots: list[Snapshot] = field(default_factory=list)
    forgotten: set[str] = field(default_factory=set)
    _count: int = 0

    def run(self, steps: list[tuple[str, Any]]) -> None:
        acts: dict[str, Callable[[Any], str | None]] = {
            "batch": self._batch,
            "single": self._handle,
            "truncate": self._truncate,
            "forget": self._forget,
        }
        with small_limits():
            for kind, what in steps:
                self.clock.now += 2 * DAY
                batch = acts[kind](what)
                self.snapshots.append(Snapshot(self.clock.now, batch, self.states()))

    def states(self) -> dict[str, State]:
        kept = {diary: stored(self.table, business_id=diary) for diary in DIARIES}
        return {diary: (found[-1].number, found[-1].after) for diary, found in kept.items() if found}

    def remembered(self, states: Mapping[str, State], unknown: Collection[str] = ()) -> dict[str, State]:
        """Return the states of streams that were never forgotten, and are not unknown."""
        left_out = self.forgotten | set(unknown)
        return {diary: state for diary, state in states.items() if diary not in left_out}

    def _batch(self, messages: list[tuple[str, str]]) -> str:
        ledger = Ledger(self.table, self.clock)
        record = drive(ledger.begin(f"batch-{len(self.snapshots)}", "a log", "out"))
        for diary, kind in messages:
            self.clock.now += HOUR
            self._handle(diary, kind, BatchContext(record.batch_id, number=record.number))
        drive(ledger.publish(record))
        return record.batch_id

    def _handle(self, diary: str, kind: str = "write", batch: BatchContext | None = None) -> None:
        self._count += 1
        number, fields = self._count, {"enqueued_at": self.clock.now, "diary": diary}
        make: dict[str, Any] = {
            "write": partial(write, f"line {number}"),
            "ponder": ponder,
            "fail": partial(misbehave, "fail"),
        }
        message = make[kind](f"m-{number}", **fields)
        Worker(self.table, clock=self.clock, batch=batch, business_id=diary).process(message)

    def _truncate(self, keep: int) -> None:
        open_batches = drive(Ledger(self.table, self.clock).open_batches())
        choices = TruncationChoices(older_than=DAY, keep_last=keep, acknowledged_after=DAY)
        rules = choices.as_of(self.clock.now, open_batches)
        for diary in DIARIES:
            drive(truncate_stream(self.table, f"Diary-{diary}", rules, PATIENCE))

    def _forget(self, diary: str) -> None:
        tables = Tables(self.table, self.table, self.table)
        if drive(forget(tables, "Diary", diary, self.clock.now, restart=True, retries=PATIENCE)):
            self.forgotten.add(diary)


@contextmanager
def small_limits() -> Iterator[None]:
    """Let streams of a few versions have runs, tails, and states that no header holds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_TAIL_BYTES", 900)
        patch.setattr(limits, "MAX_HEAD_STATE_BYTES", 150)
        yield
