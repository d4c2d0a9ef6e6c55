"""The world: what is shared, what waits, what runs, and how much may still go wrong. It changes one step at a time.

A world is a tuple of numbers, so that equal worlds are equal tuples and are explored once. Runs are named by the number
of their delivery; which worker has which makes no difference, as workers remember nothing between messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far an exploration goes: runs at once, and crashes, lost answers and power cuts in one execution."""

    workers: int = 2
    crashes: int = 0
    losses: int = 0
    cuts: int = 0
    late_writes: bool = True


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
