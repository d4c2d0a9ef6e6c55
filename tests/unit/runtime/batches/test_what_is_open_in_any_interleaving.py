"""Whatever drivers do at once: a snapshot never takes a batch for finished that can still publish, nor forgets one."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventstore import InterceptedTable, Table, drive
from runtime.errors import BatchRefusedError
from runtime.ledger.batch import BatchContext, BatchKey, OpenBatches
from runtime.ledger.ledger import PARTITION, BatchStatus, Ledger
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import ToldClock

IDS = ("a", "b")
ACTIONS = ("begin", "publish", "abandon", "prune", "look")


class Turn:
    """Lets another coroutine go on."""

    def __await__(self) -> Generator[None]:
        yield


async def _turn(*_: object) -> None:
    await Turn()


@dataclass
class Snapshot:
    """What was open, and which batches had ended when the look began and when it was over."""

    open_batches: OpenBatches
    ended_before: frozenset[BatchKey]
    ended: frozenset[BatchKey]


@dataclass
class Drivers:
    """Drivers of batches on one table, who take turns at each of its calls."""

    table: Table
    clock: ToldClock = field(default_factory=ToldClock)
    seen: set[BatchKey] = field(default_factory=set)
    ended: set[BatchKey] = field(default_factory=set)
    snapshots: list[Snapshot] = field(default_factory=list)

    def start(self, action: str, batch_id: str) -> Coroutine[Any, Any, None]:
        ledger = Ledger(InterceptedTable(self.table, before=_turn, after=self._watch), self.clock, PATIENCE)
        return self._act(ledger, action, batch_id)

    async def _act(self, ledger: Ledger, action: str, batch_id: str) -> None:
        try:
            match action:
                case "begin":
                    await ledger.begin(batch_id, "input", "out")
                case "publish":
                    await ledger.publish(await ledger.begin(batch_id, "input", "out"))
                case "abandon":
                    await ledger.abandon(batch_id)
                case "prune":
                    await ledger.prune(self.clock.now + 1)
                case _:
                    before = frozenset(self.ended)
                    found = await ledger.open_batches()
                    self.snapshots.append(Snapshot(found, before, frozenset(self.ended)))
        except BatchRefusedError:
            return

    async def _watch(self, *_: object) -> None:
        self.look()

    def look(self) -> None:
        """Note which batches there are, and which have ended."""
        for (partition, row_key), properties in rows(self.table).items():
            if partition == PARTITION and not row_key.startswith("!"):
                key = BatchKey(row_key, properties.get("Number"))
                self.seen.add(key)
                if properties["Status"] != BatchStatus.STARTED:
                    self.ended.add(key)


def take_turns(drivers: Drivers, wanted: Sequence[tuple[str, str]], turns: Sequence[tuple[int, int]]) -> None:
    """Do what is wanted, three things at once; a turn says which of them goes on, and by how many calls."""
    waiting = iter(wanted)
    order = chain.from_iterable(repeat(who, calls) for who, calls in turns)
    at_work: list[Coroutine[Any, Any, None]] = []
    while True:
        at_work += [drivers.start(*action) for action in islice(waiting, 3 - len(at_work))]
        if not at_work:
            return
        one = at_work[next(order, 0) % len(at_work)]
        drivers.clock.now += 1
        try:
            one.send(None)
        except StopIteration:
            at_work.remove(one)


actions = st.tuples(st.sampled_from(ACTIONS), st.sampled_from(IDS))


@given(
    st.lists(actions, max_size=14),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 2, 3, 4, 40])), max_size=20),
)
@example([("publish", "a"), ("look", "b"), ("look", "b")], [(0, 6), (1, 40)])
@example([("begin", "b"), ("look", "b"), ("publish", "b")], [(0, 7), (1, 40)])
@settings(max_examples=100)
def test_finished_is_what_will_not_publish_any_more(wanted, turns):
    # Given up to three drivers at once, who take turns of some calls, on an empty table
    drivers = Drivers(memory_table())

    # When each does what it wants to
    take_turns(drivers, [*wanted, ("look", "a")], turns)

    # Then each look knows what had ended when it began, and nothing that had not when it was over
    assert drivers.snapshots
    for snapshot in drivers.snapshots:
        for key in drivers.seen:
            is_finished = snapshot.open_batches.is_finished(*key)
            assert is_finished or key not in snapshot.ended_before
            assert not is_finished or key in snapshot.ended


@given(st.lists(st.sampled_from(IDS), min_size=1, max_size=6))
def test_a_version_is_of_the_batch_that_has_its_number_whatever_the_names(names):
    # Given batches that end and are pruned, so that their ids are used again
    table, clock = memory_table(), ToldClock()
    ledger = Ledger(table, clock, PATIENCE)
    begun = []
    for name in names:
        begun.append(drive(ledger.begin(name, "input", "out")).key)
        drive(ledger.abandon(name))
        clock.now += 1
        drive(ledger.prune(clock.now))

    for mine in [*begun, BatchKey("a"), BatchKey("b")]:
        context = BatchContext(mine.batch_id, number=mine.number)
        for other in [*begun, BatchKey("a"), BatchKey("b")]:
            assert context.is_ours(*other) == (mine == other)
    assert len(set(begun)) == len(names)
