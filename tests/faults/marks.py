"""What processes of a campaign tell each other in shared memory, and at which calls to the store one is killed."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from random import Random
from typing import TypeVar

from eventstore import InterceptedTable, Table


class Phase(IntEnum):
    """What a driver is doing."""

    BEGINNING = 0
    FIRST_PASS = 1
    COMMITTING = 2
    SECOND_PASS = 3
    TRUNCATING = 4

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = ("at the beginning", "in the first pass", "at a commit", "in the second pass", "of a truncation")


PHASES = {
    "handling messages": Phase.FIRST_PASS,
    "committing outcomes": Phase.COMMITTING,
    "recording in the ledger": Phase.COMMITTING,
    "finishing messages": Phase.SECOND_PASS,
}
"""The phase that each step of a batch begins, by how its sentence ends."""

_SIZE = 8
_PHASE, _FIRST_DEATHS, _CALLS = 0, 1, 1 + len(Phase)


class Marks:
    """Numbers that are seen by a process and by all that it forks. They may be a little too low, never too high."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SIZE * (len(Phase) + 2))

    @property
    def phase(self) -> Phase:
        """What the driver is doing."""
        return Phase(self._read(_PHASE))

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self._write(_PHASE, phase)

    def step(self, sentence: str) -> None:
        """Take note of a step of a batch."""
        self.phase = PHASES.get(sentence.partition(": ")[2], self.phase)

    def count_death(self) -> None:
        """Take note that the driver has lost a worker."""
        self._write(_FIRST_DEATHS + self.phase, self._read(_FIRST_DEATHS + self.phase) + 1)

    def deaths(self) -> dict[Phase, int]:
        """Return how many workers were lost in each phase, and begin to count anew."""
        found = {phase: self._read(_FIRST_DEATHS + phase) for phase in Phase}
        for phase in Phase:
            self._write(_FIRST_DEATHS + phase, 0)
        return found

    @property
    def calls(self) -> int:
        """How many calls to the store workers have made."""
        return self._read(_CALLS)

    def count_call(self) -> int:
        """Return the number of a call to the store, of all workers."""
        number = self.calls + 1
        self._write(_CALLS, number)
        return number

    def _read(self, place: int) -> int:
        return int.from_bytes(self._memory[place * _SIZE : (place + 1) * _SIZE], "little")

    def _write(self, place: int, number: int) -> None:
        self._memory[place * _SIZE : (place + 1) * _SIZE] = number.to_bytes(_SIZE, "little")


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AtCalls:
    """Wraps the tables of workers: whoever makes a call with one of these numbers kills itself, before it or after."""

    marks: Marks
    before: frozenset[int] = frozenset()
    after: frozenset[int] = frozenset()

    def __call__(self, table: Table) -> Table:
        return _Watched(table, self)

    @classmethod
    def draw(cls, marks: Marks, chance: Random, calls: int, count: int) -> AtCalls:
        """Draw some of the next calls, of a batch that makes so many."""
        begin = marks.calls
        numbers = [begin + chance.randint(1, calls) for _ in range(count)]
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
