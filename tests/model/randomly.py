"""Random schedules, for bounds that no walk gets through: so many of them, from fixed numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tests.model.engine import Engine
from tests.model.facts import Scenario
from tests.model.report import Violation
from tests.model.world import Action, Bounds, Kind, World

_ACCIDENT = 0.06
"""How likely something goes wrong at a step, where it may."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What random schedules saw: how many there were, their steps, the distinct worlds, and a violation if any."""

    scenario: str
    bounds: Bounds
    schedules: int
    steps: int
    worlds: int
    violation: Violation | None


def sample(scenario: Scenario, bounds: Bounds, schedules: int) -> Sample:
    """Go through so many random schedules, or up to the first violation."""
    with pytest.MonkeyPatch.context() as patch:
        scenario.patch(patch)
        engine = Engine(scenario, bounds)
        first = engine.first()
        seen: set[World] = set()
        steps = 0
        for number in range(schedules):
            path = walk(engine, first, random.Random(number))
            steps += len(path.actions)
            seen.update(path.worlds)
            if path.problem is not None:
                violation = Violation(path.problem, tuple(path.actions))
                return Sample(scenario.name, bounds, number + 1, steps, len(seen), violation)
    return Sample(scenario.name, bounds, schedules, steps, len(seen), None)


@dataclass(frozen=True, slots=True)
class Path:
    """One random schedule: its actions, the worlds that it came through, and what it broke."""

    actions: Sequence[Action]
    worlds: Sequence[World]
    problem: str | None


def walk(engine: Engine, world: World, chance: random.Random) -> Path:
    """Go from a world to an end, at random, or to the first violation."""
    actions: list[Action] = []
    worlds = [world]
    problem = engine.broken(world)
    while problem is None:
        action = _choose(list(engine.actions(world)), chance)
        if action is None:
            break
        world = engine.take(world, action)
        problem = engine.broken(world)
        actions.append(action)
        worlds.append(world)
    return Path(actions, worlds, problem)


def _choose(actions: Sequence[Action], chance: random.Random) -> Action | None:
    """Choose an accident now and then, else one of the things that go well; None when nothing can happen."""
    good = [action for action in actions if action.kind in (Kind.DELIVER, Kind.STEP, Kind.LAND)]
    bad = [action for action in actions if action not in good]
    if bad and (not good or chance.random() < _ACCIDENT):
        return chance.choice(bad)
    return chance.choice(good) if good else None
