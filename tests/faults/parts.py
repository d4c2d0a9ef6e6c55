"""The parts of the campaign: what is done to batches, how often, and on which store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from runtime.algorithms.choice import AlgorithmName
from tests.faults.clocks import OutOfTime
from tests.faults.disks import fill_disks
from tests.faults.rivals import run_rivals
from tests.faults.stores import AZURITE, SQLITE
from tests.faults.streamed import Streamed
from tests.faults.trial import Bench, Trial, kill_and_compare
from tests.faults.truncations import Truncated
from tests.faults.world import ALGORITHMS, Shape, World, shapes

_LOGS = 3
_MOST_KILLS = 20

Attempt = Callable[[Bench, Shape, str, Random], Trial]
"""One trial of a batch, with a name and a source of chance of its own."""


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of trouble. `goal` is the number of kills, or of other faults, after which it is done."""

    name: str
    store: str
    sentence: str
    goal: int
    attempt: Attempt
    kind: type[World] = World
    algorithms: Sequence[AlgorithmName] = ALGORITHMS

    def shapes(self, seed: int) -> list[Shape]:
        """Return the batches that it disturbs."""
        return [shape for shape in shapes(seed, _LOGS) if shape.algorithm in self.algorithms]


def _kill(bench: Bench, shape: Shape, name: str, chance: Random) -> Trial:
    return kill_and_compare(bench, shape, name, chance, chance.randint(1, _MOST_KILLS))


_KILLED = "workers, drivers and whole batches killed in either pass"

_ALL = (
    Part("batches", SQLITE, _KILLED, 9_000, _kill),
    Part(
        "truncations",
        SQLITE,
        "workers and drivers of truncations killed",
        1_000,
        _kill,
        Truncated,
        ("state-based",),
    ),
    Part("streams", SQLITE, f"epoch by epoch; {_KILLED}", 500, _kill, Streamed),
    Part(
        "rivals", SQLITE, "two drivers of one batch at once, one of them killed now and then", 300, run_rivals
    ),
    Part("clocks", SQLITE, f"clocks that jump by years; {_KILLED}", 300, _kill, OutOfTime),
    Part("disks", SQLITE, "disks that are full, or read-only", 200, fill_disks),
    Part("azurite", AZURITE, _KILLED, 1_000, _kill),
)

PARTS = {part.name: part for part in _ALL}
