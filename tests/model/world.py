"""The world: what is shared, what waits, what runs, and how much may still go wrong. It changes one step at a time.

A world is a tuple of numbers, so that equal worlds are equal tuples and are explored once. Runs are named by the number
of their delivery; which worker has which makes no difference, as workers remember nothing between messages.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tests.model.histories import Site


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far an exploration goes: runs at once, and crashes, lost answers and power cuts in one execution."""

    workers: int = 2
    crashes: int = 0
    losses: int = 0
    cuts: int = 0
    late_writes: bool = field(default=True, kw_only=True)


NOT_KEPT = (-1, -1)


class Kind(Enum):
    """What can happen next; the value is how a schedule's seed writes it."""

    DELIVER = "+"
    STEP = ""
    CRASH = "!"
    LOSE_CALL = "?"
    LOSE_ANSWER = "~"
    DELAY = "&"
    LAND = "*"
    CUT = "%"


class Action(NamedTuple):
    """One thing that happens: to a run by its number, to a job that is delivered, to a delayed call by its position."""

    kind: Kind
    subject: int


class World(NamedTuple):
    """The state of an exploration.

    `queue` and `runs` are sorted; `late` are calls that timed out and will land. `durable` is what survives a power
    cut, snapshot and facts, and is kept while there may be one.
    """

    snapshot: int
    facts: int
    queue: tuple[int, ...]
    runs: tuple[int, ...]
    late: tuple[int, ...]
    started: int
    crashes: int
    losses: int
    cuts: int = 0
    durable: tuple[int, int] = NOT_KEPT

    @property
    def is_quiescent(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not (self.queue or self.runs or self.late)


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
