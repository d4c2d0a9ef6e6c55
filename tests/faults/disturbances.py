"""Batches with rivals, on full disks, with stores and executors that are killed: each ends as an undisturbed one.

Disks are small file systems in memory, which only root can mount; otherwise file sizes are limited. Of two drivers at
once both may fail.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.faults.children import Child, ChildFailedError, End
from tests.faults.cluster import Cluster
from tests.faults.compared import Found
from tests.faults.killed_stores import KilledStore
from tests.faults.marks import AtCalls, Marks
from tests.faults.worlds import Shape, World
from tests.support.campaigns import Trial, children

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


RIVAL, KILLED_RIVAL = "a second driver beside the first", "one of two drivers"
FULL, LIMITED, READ_ONLY = "a disk without room", "a limit on the size of files", "a disk that is read-only"
EXECUTOR = "an executor"
_ROOM = 64 * 2**20


def run_rivals(bench: Bench, shape: Shape, name: str, chance: Random) -> Trial:
    """Start two drivers at once, three times; then run the batch to its end, and compare."""
    expected = bench.undisturbed(shape)
    with bench.world(shape, name) as world:
        disturbed = Disturbed(world, expected, chance)
        for _ in range(3):
            drivers = [disturbed.start()]
            drivers[0].is_done(chance.uniform(0, expected.seconds / 2))
            drivers.append(disturbed.start())
            drivers[0].is_done(chance.uniform(0, expected.seconds / 2))
            disturbed.trial.kills[RIVAL] += 1
            if chance.random() < 0.5:
                chance.choice(drivers).kill()
            for driver in drivers:
                end = disturbed.end_of(driver)
                if end is not None and end.is_killed:
                    disturbed.trial.kills[KILLED_RIVAL] += 1
        return disturbed.compare()


def fill_disks(bench: Bench, shape: Shape, name: str, chance: Random) -> Trial:
    """Run a batch four times on a disk that is nearly full, or read-only; then on one with room, and compare."""
    expected = bench.undisturbed(shape)
    with _small_disk(bench.folder / name) as disk, bench.world(shape, name) as world:
        disturbed = Disturbed(world, expected, chance)
        for _ in range(4):
            fault, driver = _spoil(disk, chance, world.driver(AtCalls(world.marks)))
            child = Child(driver, leads_group=True)
            try:
                child.end()
            except ChildFailedError:
                disturbed.trial.kills[fault] += 1
            child.wait_for_group()
            if disk is not None:
                _remount(disk, "rw", _ROOM)
        return disturbed.compare()


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path | None]:
    """Context manager that mounts a file system in memory on a folder, and yields the folder or None."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={_ROOM}", "none", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _remount(disk: Path, mode: str, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode},size={size}", str(disk)], check=True)


def _spoil(disk: Path | None, chance: Random, driver: Callable[[], None]) -> tuple[str, Callable[[], None]]:
    room = chance.choice((0, 4, 16, 32, 64, 96, 128, 192)) * 1024
    if disk is None:

        def limited() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
            driver()

        return LIMITED, limited
    if chance.random() < 0.2:
        _remount(disk, "ro", _ROOM)
        return READ_ONLY, driver
    found = os.statvfs(disk)
    _remount(disk, "rw", (found.f_blocks - found.f_bfree) * found.f_frsize + room)
    return FULL, driver


def kill_store(bench: Bench, shape: Shape, name: str, chance: Random) -> Trial:
    """Kill the store three times in the middle of a batch; then run the batch to its end, and compare."""
    store, expected = bench.server, bench.undisturbed(shape)
    assert store is not None
    with bench.world(shape, name) as world:
        disturbed = Disturbed(world, expected, chance)
        for _ in range(3):
            driver = disturbed.start()
            if not driver.is_done(chance.uniform(0, 0.8 * expected.seconds)):
                phase = world.marks.phase
                _kill_once(store, driver, is_missed=chance.random() < 0.5)
                disturbed.trial.kills[f"{store.name}, {phase}"] += 1
            disturbed.end_of(driver)
        return disturbed.compare()


def _kill_once(store: KilledStore, driver: Child, *, is_missed: bool) -> None:
    """Kill a store and restart it. If it `is_missed`, driver and workers continue before it is back."""
    os.killpg(driver.pid, signal.SIGSTOP)
    store.wait_until_saved()
    store.kill()
    if is_missed:
        os.killpg(driver.pid, signal.SIGCONT)
    store.start()
    os.killpg(driver.pid, signal.SIGCONT)


def kill_executors(bench: Bench, shape: Shape, name: str, chance: Random) -> Trial:
    """Kill executors while a batch runs on a cluster; run it again until it has ended, and compare.

    If the store is to be killed, too, it is every third victim.
    """
    cluster = bench.cluster
    assert cluster is not None
    shape = replace(shape, games=4, messages=32)
    if shape not in bench.known:
        with bench.world(shape, f"undisturbed-{len(bench.known)}") as world:
            begun = time.monotonic()
            cluster.order(_order(world))
            assert (error := cluster.answer()["error"]) is None, error
            found = Child(world.look).end().result
            bench.known[shape] = Undisturbed(found, time.monotonic() - begun, 0)
    expected, trial, orphans = bench.known[shape], Trial(), set[Path]()
    with bench.world(shape, name) as world:
        wanted = chance.randint(4, 10)
        for _ in range(6):
            cluster.order(_order(world))
            error = _kill_until_it_ends(
                cluster, bench.server, chance, wanted, expected.seconds, trial, orphans
            )
            if error is None:
                break
            if not error.startswith(TRANSIENT):
                trial.differences.append(error)
        else:
            trial.differences.append("the batch has not ended")
        cluster.wait_for_orphans(orphans)
        trial.differences += Child(world.look).end().result.differences(expected.found)
    return trial


def _order(world: World) -> dict[str, object]:
    log = world.folder / "log.jsonl"
    log.write_text("".join(json.dumps(row, default=datetime.isoformat) + "\n" for row in world.log))
    return {
        "algorithm": world.shape.algorithm,
        "store": world.place.store,
        "table": world.place.table,
        "out": str(world.out),
        "log": str(log),
    }


def _kill_until_it_ends(cluster, store, chance, wanted, seconds, trial, orphans) -> str | None:
    """Kill until the trial has the wanted kills; return the error with which the batch ends.

    The folders of killed executors, whose Python workers continue, are added to `orphans`.
    """
    answers: list[str | None] = []
    waiting = threading.Thread(target=lambda: answers.append(cluster.answer()["error"]))
    waiting.start()
    while waiting.is_alive():
        waiting.join(chance.uniform(0, seconds / 4))
        executors = cluster.executors()
        if not waiting.is_alive() or trial.kills.total() >= wanted:
            continue
        if store is not None and chance.random() < 0.3:
            store.kill()
            time.sleep(chance.uniform(0, 1))
            store.start()
            trial.kills[store.name] += 1
        elif executors and (folder := cluster.kill(chance.choice(executors))) is not None:
            orphans.add(folder)
            trial.kills[EXECUTOR] += 1
    return answers[0]
