"""Batches with rivals, on full disks, with stores and executors that are killed: each ends as an undisturbed one.

Disks are small file systems in memory, which only root can mount; otherwise file sizes are limited. Of two drivers at
once both may fail.
"""

import json
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from random import Random

from tests.faults.children import Child, ChildFailedError
from tests.faults.killed_stores import KilledStore
from tests.faults.marks import AtCalls
from tests.faults.trial import TRANSIENT, Bench, Disturbed, Undisturbed
from tests.faults.worlds import Shape, World
from tests.support.campaigns import Trial

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
