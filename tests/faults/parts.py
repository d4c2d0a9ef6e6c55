"""The parts of the campaign: what is done to batches, how often, and on which store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from runtime.algorithms.choice import AlgorithmName
from tests.faults.clocks import OutOfTime
from tests.faults.disks import fill_disks
from tests.faults.executors import kill_executors
from tests.faults.killed_azurite import kill_azurite
from tests.faults.rivals import run_rivals
from tests.faults.stores import AZURITE, SQLITE
from tests.faults.streamed import Streamed
from tests.faults.trial import Bench, Trial, kill_and_compare
from tests.faults.truncations import Truncated
from tests.faults.world import ALGORITHMS, Shape, World, shapes

_MOST_KILLS = 20

Attempt = Callable[[Bench, Shape, str, Random], Trial]
"""One trial of a batch, with a name and a source of chance of its own."""


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of trouble. `goal` is the number of kills, or of other faults, after which it is done.

    There are `logs` batches for each of the algorithms.
    """

    name: str
    store: str
    sentence: str
    goal: int
    attempt: Attempt
    kind: type[World] = World
    algorithms: Sequence[AlgorithmName] = ALGORITHMS
    logs: int = 3
    needs_cluster: bool = False
    kills_store: bool = False

    def shapes(self, seed: int) -> list[Shape]:
        """Return the batches that it disturbs."""
        return [shape for shape in shapes(seed, self.logs) if shape.algorithm in self.algorithms]


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
    Part(
        "azurite-killed",
        AZURITE,
        "Azurite itself killed and started again in the middle of batches",
        100,
        kill_azurite,
        logs=1,
        kills_store=True,
    ),
    Part(
        "executors",
        AZURITE,
        "executors of a standalone cluster killed, one of three slow, with speculation",
        200,
        kill_executors,
        algorithms=("state-based", "outbox"),
        logs=1,
        needs_cluster=True,
    ),
)

PARTS = {part.name: part for part in _ALL}
