"""Two drivers of one batch at once, one of which may be killed: both may fail, but the batch ends as it should."""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.faults.children import Child, ChildFailedError
from tests.faults.moments import AtCalls
from tests.faults.trial import Bench, Disturbed, Trial
from tests.faults.world import Shape

RIVAL, KILLED_RIVAL = "a second driver beside the first", "one of two drivers"
_TURNS = 3


def run_rivals(bench: Bench, shape: Shape, name: str, chance: Random) -> Trial:
    """Start two drivers at once, and again; then run the batch to its end, and compare."""
    expected = bench.undisturbed(shape)
    with bench.world(shape, name) as world:
        disturbed = Disturbed(world, expected, chance)
        for _ in range(_TURNS):
            drivers = []
            for _ in range(2):
                drivers.append(Child(world.driver(AtCalls(world.marks)), leads_group=True))
                drivers[0].is_done(chance.uniform(0, expected.seconds / 2))
            disturbed.drivers += drivers
            disturbed.trial.kills[RIVAL] += 1
            if chance.random() < 0.5:
                chance.choice(drivers).kill()
            _end(drivers, disturbed.trial)
        return disturbed.compare()


def _end(drivers: list[Child], trial: Trial) -> None:
    for driver in drivers:
        try:
            if driver.end().is_killed:
                trial.kills += Counter({KILLED_RIVAL: 1})
        except ChildFailedError as error:
            trial.note(error)
