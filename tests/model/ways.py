"""Ways: what a walk takes from each world, here all there is, and which worlds it holds for the same: equal ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from tests.model.engine import Engine
from tests.model.report import Report
from tests.model.world import Action, Kind, World


class Step(NamedTuple):
    """Actions that lead from one world to the next that is kept, one action as a rule."""

    actions: tuple[Action, ...]
    world: World


class Ways:
    """All ways. `reduced` says in a word or two that it is less, and how much."""

    def __init__(self, engine: Engine, reduced: str = "") -> None:
        self.engine = engine
        self.reduced = reduced

    def key(self, world: World) -> Hashable:
        """Return what the worlds have in common that are held for the same."""
        return world

    def steps(self, world: World, report: Report) -> Iterator[Step]:
        """Give the steps from a world, and count them in a report."""
        for action in self.engine.actions(world):
            yield Step((action,), self.taken(world, action, report))

    def taken(self, world: World, action: Action, report: Report) -> World:
        """Return the world after an action, and count it."""
        report.steps[action.kind] += 1
        if action.kind is Kind.CRASH:
            report.crash_points.add(self.engine.histories[self.engine.at(world, action.subject)].sites)
        return self.engine.take(world, action)
