"""When a process is killed: after a time, or before or after a call to the store."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from eventstore import InterceptedTable, Table
from tests.faults.marks import Marks

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
