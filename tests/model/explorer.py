"""The explorer: walks every interleaving within the bounds, breadth first, equal worlds once.

Breadth first, the first violation that it meets has a shortest schedule. The walk ends, because at each step something
is used up or done, and so no world comes again on one path.
"""

from __future__ import annotations

import gc
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests.model.engine import Engine
from tests.model.facts import Scenario
from tests.model.histories import Site
from tests.model.world import Action, Bounds, Kind, World


@dataclass(frozen=True, slots=True)
class Violation:
    """What was broken, and a shortest schedule that breaks it."""

    problem: str
    schedule: tuple[Action, ...]

    @property
    def invariant(self) -> str:
        """The name of the broken invariant."""
        return self.problem.partition(":")[0]


@dataclass(slots=True)
class Report:
    """What an exploration saw.

    `worlds` are the distinct states, `steps` the transitions between them; `executions` the number of different
    schedules from beginning to end, all of which it covers without walking each. `runs` says how often a coroutine was
    driven, `crash_points` where in the source one was killed, before or after a call.
    """

    scenario: str
    bounds: Bounds
    worlds: int = 0
    ends: int = 0
    executions: int = 0
    runs: int = 0
    steps: Counter[Kind] = field(default_factory=Counter)
    crash_points: set[tuple[Site, ...]] = field(default_factory=set)
    violation: Violation | None = None


def explore(scenario: Scenario, bounds: Bounds) -> Report:
    """Walk all worlds, or those up to the first that breaks an invariant."""
    with pytest.MonkeyPatch.context() as patch:
        scenario.patch(patch)
        with without_collections():
            return Walk(Engine(scenario, bounds)).run()


@contextmanager
def without_collections() -> Iterator[None]:
    """Look for no cyclic garbage: millions of tuples live to the end, and going through them takes half of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Walk:
    """One exploration under way: the worlds found so far, where each came from, and where each leads."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        first = engine.first()
        self._worlds = [first]
        self._numbers = {first: 0}
        self._came = array("q", [-1])
        self._by: list[Action | None] = [None]
        self._leads: list[array[int]] = []
        self._report = Report(engine.scenario.name, engine.bounds)

    def run(self) -> Report:
        """Walk, and report."""
        report, engine = self._report, self.engine
        for number, world in enumerate(self._worlds):  # grows while it is walked
            problem = engine.broken(world)
            if problem is not None:
                report.violation = Violation(problem, self._schedule(number))
                break
            self._expand(number, world)
        report.worlds = len(self._worlds)
        report.runs = engine.histories.executed
        if report.violation is None:
            report.ends = sum(world.is_quiescent for world in self._worlds)
            report.executions = self._executions()
        return report

    def _expand(self, number: int, world: World) -> None:
        engine, report = self.engine, self._report
        leads = array("q")
        for action in engine.actions(world):
            reached = engine.take(world, action)
            report.steps[action.kind] += 1
            if action.kind is Kind.CRASH:
                report.crash_points.add(engine.histories[engine.at(world, action.subject)].sites)
            following = self._numbers.get(reached)
            if following is None:
                following = self._numbers[reached] = len(self._worlds)
                self._worlds.append(reached)
                self._came.append(number)
                self._by.append(action)
            leads.append(following)
        self._leads.append(leads)

    def _schedule(self, number: int) -> tuple[Action, ...]:
        actions = []
        while number > 0:
            action = self._by[number]
            if action is not None:
                actions.append(action)
            number = self._came[number]
        return tuple(reversed(actions))

    def _executions(self) -> int:
        """Count the ways from the first world to the quiescent ones."""
        entrances = [0] * len(self._worlds)
        for leads in self._leads:
            for following in leads:
                entrances[following] += 1
        ways = [0] * len(self._worlds)
        ways[0], ready, total = 1, [0], 0
        while ready:
            number = ready.pop()
            if not self._leads[number]:
                total += ways[number]
            for following in self._leads[number]:
                ways[following] += ways[number]
                entrances[following] -= 1
                if not entrances[following]:
                    ready.append(following)
        return total
