"""Reduction: a walk that takes one of each group of worlds that are alike, and one of the orders that come to the same.

It breaks what the whole walk breaks. Left out are

- worlds that differ in nothing but marks and the like: see `symmetry.py`;
- what a run was answered, where it has forgotten it: see `local_states.py`;
- the order of things that change places with all that others do: see `urgency.py`;
- to die when a run has done nothing since it might have died before: a worker takes its delivery up again in the same
  world, or one that differs from it in marks;
- delayed calls that nothing can come of: see `overtaken.py`.

No run counts how often it tried, so one that begins again is where it began. A walk may come back to where it was, and
there are no executions to count; that each world leads to an end is looked at instead.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from eventstore import ConcurrencyConflictError
from runtime.retries import Retries
from tests.model.contents import Contents
from tests.model.engine import Engine
from tests.model.facts import Scenario
from tests.model.histories import GaveUpError
from tests.model.local_states import LocalStates
from tests.model.overtaken import Overtaken
from tests.model.processes import Dependencies
from tests.model.report import Report
from tests.model.shapes import Shapes
from tests.model.symmetry import Symmetry
from tests.model.urgency import urgent
from tests.model.ways import Step, Ways
from tests.model.world import Action, Bounds, Kind, World

REDUCED = "reduced"


@dataclass(frozen=True, slots=True)
class Reduction:
    """How to walk less.

    `timeless` says that no times are compared; that they are not is looked at. With `races` a walk goes on only until a
    piece of work has lost more than so many: where attempts can refuse each other for ever, there is no other end.
    """

    timeless: bool = False
    races: int | None = None

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Let runs try again without counting, or until they have lost too many races."""
        patch.setattr(Retries, "pause", _never_mind if self.races is None else _giving_up_after(self.races))
        patch.setattr(Dependencies, "times_are_compared", not self.timeless)

    def ways(self, scenario: Scenario, bounds: Bounds) -> Ways:
        """Return the ways that are left."""
        contents, shapes = Contents(), Shapes()
        engine = Engine(scenario, bounds, contents, LocalStates(contents, shapes, bounds))
        return FewerWays(engine, Symmetry(engine, shapes, timeless=self.timeless), self.name)

    @property
    def name(self) -> str:
        """What reports call it."""
        return REDUCED if self.races is None else f"{REDUCED}, races: {self.races}"


class FewerWays(Ways):
    """The ways that are left."""

    def __init__(self, engine: Engine, symmetry: Symmetry, reduced: str) -> None:
        super().__init__(engine, reduced)
        self._symmetry = symmetry
        self._overtaken = Overtaken(engine)

    def key(self, world: World) -> Hashable:
        """Return what the worlds have in common that are held for the same."""
        return self._symmetry.key(world)

    def steps(self, world: World, report: Report) -> Iterator[Step]:
        """Give the steps from a world; with each, what is urgent after it and leaves no choice."""
        for action in self._urgent(world, report) or self._actions(world):
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

    def _actions(self, world: World) -> Iterator[Action]:
        """Give what can happen in a world, nothing when a run has given up."""
        moments = self.engine.histories.moments
        if any(isinstance(moments[number].error, GaveUpError) for number in world.runs):
            return
        for action in self.engine.actions(world):
            if not self._is_idle(world, action):
                yield action

    def _is_idle(self, world: World, action: Action) -> bool:
        """Say whether a run would die that has done nothing since it might have died before."""
        if action.kind is not Kind.CRASH:
            return False
        return not self.engine.histories[self.engine.at(world, action.subject)].has_acted


async def _never_mind(_: Retries, __: Exception) -> None:
    """Try again, however often that was done."""


def _giving_up_after(races: int) -> Callable[[Any, Exception], Coroutine[Any, Any, None]]:
    """Return what counts lost races."""

    async def pause(self: Any, error: Exception) -> None:
        self._failures += isinstance(error, ConcurrencyConflictError)
        if self._failures > races:
            raise GaveUpError

    return pause
