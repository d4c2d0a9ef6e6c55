"""A trial: one batch, disturbed again and again, run to its end, and compared with an undisturbed one."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from tests.faults.children import Child, ChildFailedError, End
from tests.faults.compared import Found
from tests.faults.marks import AtCalls, Marks
from tests.faults.worlds import Shape, World
from tests.support.campaigns import Trial, children

if TYPE_CHECKING:
    from tests.faults.cluster import Cluster
    from tests.faults.killed_stores import KilledStore

WORKER, DRIVER, BATCH = "a worker", "a driver", "a driver and its workers"
TRANSIENT = (
    "BatchFailedError",
    "BatchRefusedError",
    "StoreUnavailableError",
    "RetriesExhaustedError",
    "LeaseLostError",
)
"""What a driver may end with whose workers were killed, or which has others beside it."""

VICTIMS = (WORKER, DRIVER, DRIVER, BATCH, BATCH)


class Undisturbed(NamedTuple):
    """A batch that was not: what there is then, how long it took, and how many calls its workers made."""

    found: Found
    seconds: float
    calls: int


@dataclass(frozen=True)
class Bench:
    """Makes worlds, each in a new folder, and knows how each batch ends undisturbed.

    `url` names a store for all of them, None has each make a file of its own. `cluster` is one of Spark, where batches
    are to run on one, and `server` the store where it is to be killed.
    """

    folder: Path
    marks: Marks
    url: str | None = None
    kind: type[World] = World
    known: dict[Shape, Undisturbed] = field(default_factory=dict)
    cluster: Cluster | None = None
    server: KilledStore | None = None

    @contextmanager
    def world(self, shape: Shape, name: str) -> Iterator[World]:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        table = "games" if self.url is None else f"t{name.replace('-', 'x')}"
        world = self.kind(shape, folder, self.marks, self.url or "", table, shape.log())
        Child(world.begin).end()
        try:
            yield world
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def undisturbed(self, shape: Shape) -> Undisturbed:
        if shape not in self.known:
            with self.world(shape, f"undisturbed-{len(self.known)}") as world:
                begun, calls = time.monotonic(), self.marks.calls
                run_to_its_end(world)
                seconds = time.monotonic() - begun
                found = Child(world.look).end().result
                self.known[shape] = Undisturbed(found, seconds, self.marks.calls - calls)
        return self.known[shape]


def run_to_its_end(world: World) -> None:
    """Run or resume a batch, and let nobody disturb it."""
    assert not Child(world.driver(AtCalls(world.marks))).end().is_killed


def kill_and_compare(bench: Bench, shape: Shape, name: str, chance: Random, kills: int) -> Trial:
    """Kill what a batch consists of, about so many times; then run it to its end, and compare."""
    expected = bench.undisturbed(shape)
    with bench.world(shape, name) as world:
        disturbed = Disturbed(world, expected, chance)
        for _ in range(2 * kills):
            if disturbed.trial.kills.total() >= kills or not disturbed.run():
                break
        return disturbed.compare()


class Disturbed:
    """A batch whose drivers and workers are killed. Workers that lost their driver go on beside the next one."""

    def __init__(self, world: World, expected: Undisturbed, chance: Random) -> None:
        self.trial = Trial()
        self._world = world
        self._expected = expected
        self._chance = chance
        self.drivers: list[Child] = []

    def run(self) -> bool:
        """Start a driver, and kill it, its workers or all of them. Say whether the batch is unfinished then."""
        victim = self._chance.choice(VICTIMS)
        calls = self._chance.randint(1, 4) if victim == WORKER else 0
        moments = AtCalls.draw(self._world.marks, self._chance, self._expected.calls, calls)
        driver = self.start(moments)
        return self._lose_workers(driver) if victim == WORKER else self._lose(driver, victim)

    def start(self, moments: AtCalls | None = None) -> Child:
        """Start a driver, whose workers kill themselves at `moments`."""
        moments = moments or AtCalls(self._world.marks)
        self.drivers.append(Child(self._world.driver(moments), leads_group=True))
        return self.drivers[-1]

    def compare(self) -> Trial:
        """Run the batch to its end, wait for all that was left of it, and compare."""
        try:
            run_to_its_end(self._world)
        except ChildFailedError as error:
            self.trial.differences.append(str(error))
        for driver in self.drivers:
            driver.wait_for_group()
        found = Child(self._world.look).end().result
        self.trial.differences += found.differences(self._expected.found)
        return self.trial

    def _lose_workers(self, driver: Child) -> bool:
        """Kill workers while the driver lives, which starts others in their place, and at last gives up."""
        while not driver.is_done(self._moment() / 2):
            if workers := children(driver.pid):
                with suppress(ProcessLookupError):
                    os.kill(self._chance.choice(workers), signal.SIGKILL)
        is_unfinished = self.end_of(driver) is None
        for phase, count in self._world.marks.deaths().items():
            self.trial.kills += Counter({f"{WORKER}, {phase}": count})
        return is_unfinished

    def _lose(self, driver: Child, victim: str) -> bool:
        driver.is_done(self._moment())
        phase = self._world.marks.phase
        if victim == DRIVER:
            driver.kill()
        else:
            driver.kill_group()
        end = self.end_of(driver)
        if end is not None and end.is_killed:
            self.trial.kills[f"{victim}, {phase}"] += 1
        return end is None or end.is_killed

    def end_of(self, driver: Child) -> End | None:
        """Return how a driver ended, or None after an error, which must say to run the batch again."""
        try:
            return driver.end()
        except ChildFailedError as error:
            if not any(name in error.last_line for name in TRANSIENT):
                self.trial.differences.append(str(error))
            return None

    def _moment(self) -> float:
        return self._chance.uniform(0, 0.6 * self._expected.seconds)
