"""What forked processes of a campaign count in shared memory, and at which store calls one of them is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray, RawValue
from random import Random
from typing import TypeVar

from eventstore import InterceptedTable, Table

BEGINNING, FIRST_PASS, COMMIT, SECOND_PASS, TRUNCATION = PHASES = (
    "at the beginning", "in the first pass", "at a commit", "in the second pass", "of a truncation",
)  # fmt: skip
_STEPS = {
    "handling messages": FIRST_PASS,
    "committing outcomes": COMMIT,
    "recording in the ledger": COMMIT,
    "finishing messages": SECOND_PASS,
}
"""The phase that begins with a step of a batch, by the end of the step's sentence."""


class Marks:
    """Numbers that a process shares with all processes that it forks. Races may make them too low, never too high."""

    def __init__(self) -> None:
        self._phase, self._calls = RawValue("i"), RawValue("q")
        self._deaths = RawArray("q", len(PHASES))

    @property
    def phase(self) -> str:
        return PHASES[self._phase.value]

    @phase.setter
    def phase(self, phase: str) -> None:
        self._phase.value = PHASES.index(phase)

    def step(self, sentence: str) -> None:
        """Enter the phase that begins with a step of a batch."""
        self.phase = _STEPS.get(sentence.partition(": ")[2], self.phase)

    def count_death(self) -> None:
        self._deaths[self._phase.value] += 1

    def deaths(self) -> dict[str, int]:
        """Return how many workers were lost in each phase, and reset the counts."""
        found = dict(zip(PHASES, self._deaths, strict=True))
        self._deaths[:] = [0] * len(PHASES)
        return found

    @property
    def calls(self) -> int:
        return int(self._calls.value)

    def count_call(self) -> int:
        number = self._calls.value = self.calls + 1
        return number


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AtCalls:
    """Wraps the tables of workers: the process that makes a call with one of these numbers kills itself."""

    marks: Marks
    before: frozenset[int] = frozenset()
    after: frozenset[int] = frozenset()

    def __call__(self, table: Table) -> Table:
        return _Watched(table, self)

    @classmethod
    def draw(cls, marks: Marks, chance: Random, calls: int, count: int) -> AtCalls:
        """Draw `count` of the next `calls` calls; every second one is killed after the call."""
        numbers = [marks.calls + chance.randint(1, calls) for _ in range(count)]
        return cls(marks, frozenset(numbers[::2]), frozenset(numbers[1::2]))


class _Watched(InterceptedTable):
    def __init__(self, table: Table, moments: AtCalls) -> None:
        super().__init__(table)
        self._moments = moments

    async def _call(self, name: str, partition_key: str, call: Callable[[], Awaitable[T]]) -> T:
        number = self._moments.marks.count_call()
        if number in self._moments.before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = await super()._call(name, partition_key, call)
        if number in self._moments.after:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
