"""Reports: what an exploration saw."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.model.histories import Site
from tests.model.world import Action, Bounds, Kind


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
    schedules from beginning to end, all of which it covers without walking each; where they cannot be counted,
    `reduced` says so. `runs` says how often a coroutine was driven, `crash_points` where in the source one was killed,
    before or after a call.
    """

    scenario: str
    bounds: Bounds
    worlds: int = 0
    ends: int = 0
    executions: int = 0
    reduced: str = ""
    runs: int = 0
    steps: Counter[Kind] = field(default_factory=Counter)
    crash_points: set[tuple[Site, ...]] = field(default_factory=set)
    violation: Violation | None = None
