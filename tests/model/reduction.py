"""Reduction: a walk that takes one of each group of worlds that are alike, and one of the orders that come to the same.

It breaks what the whole walk breaks. Left out are

- worlds that differ in nothing but marks and the like: see `Symmetry`;
- what a run was answered, where it has forgotten it: see `LocalStates`;
- the order of things that change places with all that others do: see `urgent`;
- to die when a run has done nothing since it might have died before: a worker takes its delivery up again in the same
  world, or one that differs from it in marks;
- delayed calls that nothing can come of: see `Overtaken`.

No run counts how often it tried, so one that begins again is where it began. A walk may come back to where it was, and
there are no executions to count; that each world leads to an end is looked at instead.
"""

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import NamedTuple

import pytest

from eventstore import ANY_ETAG, Operation, Row, StoreUnavailableError
from eventstore.keys import escape
from runtime.retries import Retries
from tests.model.calls import OUTSIDE
from tests.model.contents import Contents, Rows
from tests.model.engine import Engine, Step, Ways
from tests.model.facts import Scenario
from tests.model.histories import DONE, Moment
from tests.model.processes import Dependencies, Process
from tests.model.shapes import Mark, Shape, Shapes
from tests.model.world import NOT_KEPT, Action, Bounds, Kind, Report, World


class LocalStates:
    def __init__(self, contents: Contents, shapes: Shapes, bounds: Bounds) -> None:
        self._contents = contents
        self._shapes = shapes
        self._cuts = bounds.cuts > 0

    def of(self, moment: Moment, before: Moment | None) -> Hashable:
        """Return the local state at a moment after another; note its shape, and whether the run has acted before it."""
        moment.has_acted = before is not None and self._has_acted(before, moment.answer)
        if moment.coroutine is None:
            moment.shape = self._shapes.of(moment.job, moment.has_acted, moment.result, moment.error)
            return moment.run, moment.shape
        started, process = moment.coroutine
        moment.shape = self._shapes.of(moment.job, moment.has_acted, started, process)
        return moment.run, moment.shape, process.drawn

    def _has_acted(self, before: Moment, answer: int) -> bool:
        """Say whether the call of a moment may have changed something: it was not refused, and may do so at all.

        After a barrier it is said of the call before that: a run does not die in between, see `urgent`. It makes a
        difference itself when power can be cut.
        """
        call, error = self._contents.calls[before.call], self._contents.answers[answer].error
        if call.is_barrier:
            return self._cuts or before.has_acted
        return call.changes and (error is None or isinstance(error, StoreUnavailableError))


class Overtaken:
    """Delayed calls that cannot take effect any more are forgotten."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_refused = cache(self._refused)

    def without(self, world: World) -> World:
        late = tuple([call for call in world.late if not self._is_overtaken(world, call)])
        return world._replace(late=late) if len(late) < len(world.late) else world

    def _is_overtaken(self, world: World, number: int) -> bool:
        if self._engine.contents.calls[number].target == OUTSIDE:
            return self._engine.chronicle.published(world.facts, number) == world.facts
        return self._is_refused(world.snapshot, number)

    def _refused(self, snapshot: int, number: int) -> bool:
        call = self._engine.contents.calls[number]
        partition_key, operations = call.arguments
        tables = self._engine.contents.snapshots[snapshot].tables
        rows = tables.get(call.target, {}).get(escape(partition_key), {})
        return any(_is_gone(operation, rows) for operation in operations)


def _is_gone(operation: Operation, rows: Rows) -> bool:
    if operation.etag is None or operation.etag == ANY_ETAG:
        return False
    row = rows.get(escape(operation.row_key))
    return row is None or row.etag != operation.etag


_TO_COME = 4
"""The clocks of so many processes that may start yet are compared with the times that there are."""


class _Shared(NamedTuple):
    """What tables hold, and what is told: the number of both, where their marks are found, and their times."""

    number: int
    marks: dict[Hashable, int]
    times: tuple[int, ...]
    told: tuple[int, ...]


class Symmetry:
    """Gives worlds keys, the same one when they are one. `timeless` says that no times are compared."""

    def __init__(self, engine: Engine, shapes: Shapes, *, timeless: bool) -> None:
        self._engine = engine
        self._shapes = shapes
        self._timeless = timeless
        self._numbers: dict[Hashable, int] = {}
        self._rows: dict[int, tuple[Row, Shape]] = {}
        self._snapshot = cache(self._shape_of_snapshot)
        self._told = cache(self._shape_of_facts)
        self._call = cache(lambda number: shapes.of(engine.contents.calls[number]))
        self._shared = cache(self._put_together)

    def key(self, world: World) -> bytes:
        moments = self._engine.histories.moments
        shared = self._shared(world.snapshot, world.facts, world.durable)
        late = [self._call(call) for call in world.late]
        orders = _orders([moments[number].shape for number in world.runs])
        patterns = [self._pattern(shared, [*order, *late], world) for order in orders]
        pattern = patterns[0] if len(patterns) == 1 else min(patterns)
        numbers = [
            shared.number,
            self._number(
                (world.queue, world.crashes, world.losses, world.cuts, 0 if self._timeless else world.started)
            ),
            self._number(pattern),
            *[shape.number for shape in orders[0]],
            -1,
            *[shape.number for shape in late],
        ]
        return array("i", numbers).tobytes()

    def end(self, world: World) -> Shape:
        """Return the shape of what tables hold and of what happened, without the marks and times in them."""
        both = self._shapes.joined([self._snapshot(world.snapshot), self._told(world.facts)])
        return both._replace(marks=(), times=())

    def _pattern(self, shared: _Shared, shapes: Sequence[Shape], world: World) -> tuple[int, ...]:
        """Return where else the marks of runs are found, and of times which are later than others."""
        marks = shared.marks.copy()
        if self._timeless:
            return tuple([
                marks.setdefault(mark, len(marks)) for shape in shapes for mark in (*shape.marks, *shape.times)
            ])  # fmt: skip
        times = [time for shape in shapes for time in shape.times]
        clocks = (
            () if world.is_quiescent else [Process(world.started + number).now for number in range(_TO_COME)]
        )
        ranks = {time: rank for rank, time in enumerate(sorted({*shared.times, *times, *clocks}))}
        return (
            *[marks.setdefault(mark, len(marks)) for shape in shapes for mark in shape.marks],
            -1,
            *[ranks[time] for time in (*shared.times, *times, *clocks)],
            *[ranks.setdefault(time, len(ranks)) for time in shared.told],
        )

    def _number(self, part: Hashable) -> int:
        return self._numbers.setdefault(part, len(self._numbers))

    def _put_together(self, snapshot: int, facts: int, durable: tuple[int, int]) -> _Shared:
        held, told = [self._snapshot(snapshot)], [self._told(facts)]
        if durable != NOT_KEPT:
            held.append(self._snapshot(durable[0]))
            told.append(self._told(durable[1]))
        marks: dict[Hashable, int] = {}
        places = [marks.setdefault(mark, len(marks)) for shape in (*held, *told) for mark in shape.marks]
        if self._timeless:
            places += [marks.setdefault(time, len(marks)) for shape in (*held, *told) for time in shape.times]
        number = self._number((tuple([shape.number for shape in (*held, *told)]), tuple(places)))
        times = tuple([time for shape in held for time in shape.times])
        return _Shared(number, marks, times, tuple([time for shape in told for time in shape.times]))

    def _shape_of_snapshot(self, number: int) -> Shape:
        """Return the shape of all rows, in an order that does not depend on marks in their keys."""
        tables = self._engine.contents.snapshots[number].tables
        rows = [
            self._row(table, key, row)
            for table, partitions in tables.items()
            for key, partition in partitions.items()
            for row in partition.values()
        ]
        return self._shapes.joined(_arranged(rows))

    def _row(self, table: str, key: str, row: Row) -> Shape:
        """Return the shape of a row, which most snapshots have in common. It is kept, and so its identity."""
        known = self._rows.get(id(row))
        if known is None:
            known = self._rows[id(row)] = row, self._shapes.of(table, key, row)
        return known[1]

    def _shape_of_facts(self, number: int) -> Shape:
        facts = self._engine.chronicle[number]
        committed = self._shapes.joined([self._shapes.of(each) for each in facts.committed])
        others = [self._shapes.of(each) for each in (*facts.published, *facts.done)]
        return self._shapes.joined([committed, *_arranged(others)])


def _arranged(shapes: Iterable[Shape]) -> Sequence[Shape]:
    """Return shapes in the order of their numbers; those that are alike by where else their marks are found."""
    found = sorted(shapes)
    times = Counter(shape.number for shape in found)
    first: dict[Mark, int] = {}
    for shape in found:
        for mark in shape.marks if times[shape.number] == 1 else ():
            first.setdefault(mark, len(first))
    nowhere = len(first)
    return sorted(
        found,
        key=lambda shape: (shape.number, [first.get(mark, nowhere) for mark in shape.marks], *shape[1:]),
    )


def _orders(shapes: Sequence[Shape]) -> Sequence[Sequence[Shape]]:
    """Return the orders of some shapes in which their numbers rise: several when some are alike."""
    numbers = sorted([shape.number for shape in shapes])
    if len(set(numbers)) == len(numbers):
        return [sorted(shapes)]
    return [order for order in permutations(shapes) if [shape.number for shape in order] == numbers]


def urgent(engine: Engine, world: World) -> list[Action]:
    """Return what is walked from a world when that is not everything: all that one run, or one idle worker, may do."""
    if world.cuts:
        return []
    for number in world.runs:
        moment = engine.histories[number]
        if moment.call == DONE:
            if moment.error is None:
                return _with(Kind.CRASH, moment.run, world.crashes)
        elif engine.contents.calls[moment.call].is_barrier:
            return _with(Kind.LOSE_CALL, moment.run, world.losses)
    if len(world.runs) < engine.bounds.workers:
        return [Action(Kind.DELIVER, job) for job in sorted(set(world.queue))]
    return []


def _with(accident: Kind, run: int, left: int) -> list[Action]:
    return [Action(Kind.STEP, run), Action(accident, run)] if left else [Action(Kind.STEP, run)]


REDUCED = "reduced"


@dataclass(frozen=True, slots=True)
class Reduction:
    """Walks less. `timeless` says that no times are compared; comparing a time raises."""

    timeless: bool = False

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Make runs retry without counting, which would tell their worlds apart."""
        patch.setattr(Retries, "pause", _never_mind)
        patch.setattr(Dependencies, "times_are_compared", not self.timeless)

    def ways(self, scenario: Scenario, bounds: Bounds) -> Ways:
        contents, shapes = Contents(), Shapes()
        engine = Engine(scenario, bounds, contents, LocalStates(contents, shapes, bounds))
        return FewerWays(engine, Symmetry(engine, shapes, timeless=self.timeless), REDUCED)


class FewerWays(Ways):
    def __init__(self, engine: Engine, symmetry: Symmetry, reduced: str) -> None:
        super().__init__(engine, reduced)
        self._symmetry = symmetry
        self._overtaken = Overtaken(engine)

    def key(self, world: World) -> Hashable:
        return self._symmetry.key(world)

    def steps(self, world: World, report: Report) -> Iterator[Step]:
        """Give the steps from a world; with each, what is urgent after it and leaves no choice."""
        all_left = (each for each in self.engine.actions(world) if not self._is_idle(world, each))
        for action in self._urgent(world, report) or all_left:
            actions, reached = [action], self.taken(world, action, report)
            while len(only := self._urgent(reached, report)) == 1:
                actions += only
                reached = self.taken(reached, only[0], report)
            yield Step(tuple(actions), reached)

    def taken(self, world: World, action: Action, report: Report) -> World:
        """Return the world after an action, without the delayed calls that are overtaken in it."""
        reached = super().taken(world, action, report)
        return self._overtaken.without(reached) if reached.late else reached

    def _urgent(self, world: World, report: Report) -> list[Action]:
        """Return what is urgent in a world. A run may have died at each point; elsewhere that may come to the same."""
        if world.crashes:
            moments = self.engine.histories.moments
            report.crash_points.update([moments[number].sites for number in world.runs])
        return [action for action in urgent(self.engine, world) if not self._is_idle(world, action)]

    def _is_idle(self, world: World, action: Action) -> bool:
        """Say whether a run would die that has done nothing since it might have died before."""
        if action.kind is not Kind.CRASH:
            return False
        return not self.engine.histories[self.engine.at(world, action.subject)].has_acted


async def _never_mind(_: Retries, __: Exception) -> None:
    """Try again, however often that was done."""
