"""Symmetry: worlds that differ in nothing but their marks, and in times that come in the same order, are one.

What can happen in one of them can happen in the other, with other marks. So of each such group one world is walked on
from. What a mark stands for is not kept, only where it is found again.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import permutations
from typing import NamedTuple

from eventstore import Row
from tests.model.engine import Engine
from tests.model.marks import Mark
from tests.model.processes import Process
from tests.model.shapes import Shape, Shapes
from tests.model.world import NOT_KEPT, World

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
        self._snapshots: dict[int, Shape] = {}
        self._facts: dict[int, Shape] = {}
        self._together: dict[tuple[int, ...], _Shared] = {}
        self._late: dict[int, Shape] = {}

    def key(self, world: World) -> bytes:
        """Return the key of a world."""
        moments = self._engine.histories.moments
        shared = self._shared(world)
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

    def _shared(self, world: World) -> _Shared:
        together = (world.snapshot, world.facts, *world.durable)
        shared = self._together.get(together)
        if shared is None:
            shared = self._together[together] = self._put_together(world)
        return shared

    def _put_together(self, world: World) -> _Shared:
        held, told = [self._snapshot(world.snapshot)], [self._told(world.facts)]
        if world.durable != NOT_KEPT:
            held.append(self._snapshot(world.durable[0]))
            told.append(self._told(world.durable[1]))
        marks: dict[Hashable, int] = {}
        places = [marks.setdefault(mark, len(marks)) for shape in (*held, *told) for mark in shape.marks]
        if self._timeless:
            places += [marks.setdefault(time, len(marks)) for shape in (*held, *told) for time in shape.times]
        number = self._number((tuple([shape.number for shape in (*held, *told)]), tuple(places)))
        times = tuple([time for shape in held for time in shape.times])
        return _Shared(number, marks, times, tuple([time for shape in told for time in shape.times]))

    def _snapshot(self, number: int) -> Shape:
        """Return the rows of the tables, in an order that does not hang on marks in their keys."""
        shape = self._snapshots.get(number)
        if shape is None:
            tables = self._engine.contents.snapshots[number].tables
            rows = [
                self._row(table, key, row)
                for table, partitions in tables.items()
                for key, partition in partitions.items()
                for row in partition.values()
            ]
            shape = self._snapshots[number] = self._shapes.joined(_arranged(rows))
        return shape

    def _row(self, table: str, key: str, row: Row) -> Shape:
        """Return the shape of a row, which most snapshots have in common. It is kept, and so its identity."""
        known = self._rows.get(id(row))
        if known is None:
            known = self._rows[id(row)] = row, self._shapes.of(table, key, row)
        return known[1]

    def _told(self, number: int) -> Shape:
        """Return the facts."""
        shape = self._facts.get(number)
        if shape is None:
            facts = self._engine.chronicle[number]
            committed = self._shapes.joined([self._shapes.of(each) for each in facts.committed])
            others = [self._shapes.of(each) for each in (*facts.published, *facts.done)]
            shape = self._facts[number] = self._shapes.joined([committed, *_arranged(others)])
        return shape

    def _call(self, call: int) -> Shape:
        shape = self._late.get(call)
        if shape is None:
            shape = self._late[call] = self._shapes.of(self._engine.contents.calls[call])
        return shape


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
