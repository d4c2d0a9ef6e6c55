"""The explorer: walks every interleaving within the bounds, breadth first, equal worlds once.

Breadth first, the first violation that it meets has a shortest schedule. The walk of all worlds ends, because at each
step something is used up or done, and so no world comes again on one path. A reduced one may come back to where it was.
"""

from __future__ import annotations

import gc
from array import array
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from tests.model.engine import Engine, Ways
from tests.model.facts import Scenario
from tests.model.reduction import Reduction
from tests.model.world import Action, Bounds, Report, Violation, World

ENDLESS = "Ends: from here on, nothing leads to an end any more"


def explore(scenario: Scenario, bounds: Bounds, reduction: Reduction | None = None) -> Report:
    """Walk all worlds up to the first that breaks an invariant; with a reduction, one of those that are alike."""
    with pytest.MonkeyPatch.context() as patch:
        scenario.patch(patch)
        with without_collections():
            return walk_of(scenario, bounds, reduction, patch).run()


def walk_of(scenario, bounds, reduction, patch) -> Walk:
    """Return the walk that explores a scenario, when what a reduction replaces is `patch`ed."""
    if reduction is None:
        return Walk(Ways(Engine(scenario, bounds)))
    reduction.patch(patch)
    return Walk(reduction.ways(scenario, bounds))


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

    def __init__(self, ways: Ways) -> None:
        self.engine = ways.engine
        self._ways = ways
        first = self.engine.first()
        self._numbers = {self._ways.key(first): 0}
        self._ahead = deque([first])
        self._came = array("q", [-1])
        self._by: list[tuple[Action, ...]] = [()]
        self._leads = array("q")
        self._ends_of_leads = array("q")
        self._report = Report(self.engine.scenario.name, self.engine.bounds, reduced=ways.reduced)

    def run(self) -> Report:
        report, engine = self._report, self.engine
        number = 0
        while self._ahead:
            world = self._ahead.popleft()
            problem = engine.broken(world)
            if problem is not None:
                report.violation = Violation(problem, self._schedule(number))
                break
            report.ends += world.is_quiescent
            self._expand(number, world)
            number += 1
        report.worlds = len(self._numbers)
        report.runs = engine.histories.executed
        if report.violation is None and not self._ways.reduced:
            report.executions = self._executions()
        elif report.violation is None:
            nowhere = self._leading_nowhere()
            if nowhere is not None:
                report.violation = Violation(ENDLESS, self._schedule(nowhere))
        return report

    def _expand(self, number: int, world: World) -> None:
        for step in self._ways.steps(world, self._report):
            key = self._ways.key(step.world)
            following = self._numbers.get(key)
            if following is None:
                following = self._numbers[key] = len(self._numbers)
                self._ahead.append(step.world)
                self._came.append(number)
                self._by.append(step.actions)
            self._leads.append(following)
        self._ends_of_leads.append(len(self._leads))

    def _schedule(self, number: int) -> tuple[Action, ...]:
        actions: list[Action] = []
        while number > 0:
            actions += reversed(self._by[number])
            number = self._came[number]
        return tuple(reversed(actions))

    def _leading_nowhere(self) -> int | None:
        """Return the first world from which there is no way to an end, None when all lead to one."""
        ends = np.frombuffer(self._ends_of_leads, dtype=np.int64)
        outgoing = np.diff(ends, prepend=0)
        begins = np.repeat(np.arange(len(ends)), outgoing)
        leads = np.frombuffer(self._leads, dtype=np.int64)
        leading = outgoing == 0
        known = 0
        while known < leading.sum():
            known = leading.sum()
            leading[begins[leading[leads]]] = True
        return None if leading.all() else int(np.argmin(leading))

    def _executions(self) -> int:
        entrances = [0] * len(self._numbers)
        for following in self._leads:
            entrances[following] += 1
        ways = [0] * len(self._numbers)
        ways[0], ready, total = 1, [0], 0
        while ready:
            number = ready.pop()
            begin = self._ends_of_leads[number - 1] if number else 0
            leads = self._leads[begin : self._ends_of_leads[number]]
            if not leads:
                total += ways[number]
            for following in leads:
                ways[following] += ways[number]
                entrances[following] -= 1
                if not entrances[following]:
                    ready.append(following)
        return total
