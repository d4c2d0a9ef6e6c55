"""The parts of the campaign: what is done to batches, how often, and on which store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.faults.trial import Bench, Trial, kill_and_compare
from tests.faults.world import shapes

_LOGS = 3
_MOST_KILLS = 12

Attempt = Callable[[Bench, str, Random], Trial]
"""One trial, with a name and a source of chance of its own."""


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of trouble. `goal` is the number of kills, or of faults, after which it is done."""

    name: str
    store: str
    sentence: str
    goal: int
    attempt: Attempt


def _kill(bench: Bench, name: str, chance: Random) -> Trial:
    shape = chance.choice(shapes(1, _LOGS))
    return kill_and_compare(bench, shape, name, chance, chance.randint(1, _MOST_KILLS))


PARTS = {
    part.name: part
    for part in (
        Part(
            "batches",
            "SQLite",
            "batches without Spark: workers, drivers and whole batches killed in either pass",
            9_000,
            _kill,
        ),
    )
}
