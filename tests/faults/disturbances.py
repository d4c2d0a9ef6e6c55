"""Batches with rivals, on full disks, with clocks that jump: each ends as one that nobody disturbs.

Disks are small ones in memory, which only root can mount; else a limit on files. Of two drivers at once both may fail.
Clocks jump forth by years, and back again, from one call to the next, in each process.
"""

import os
import re
import resource
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom

from eventstore import connect
from eventstore.port import pages
from runtime.algorithms.outbox.entity import ENTITY, read_entity
from runtime.algorithms.state_based.truncation import DAY
from runtime.batch_options import TablePlace
from runtime.clock import Clock
from runtime.versions.stream import summaries
from tests.faults.children import Child, ChildFailedError
from tests.faults.compared import Found, wait_for
from tests.faults.marks import AtCalls
from tests.faults.trial import Bench, Disturbed, Trial
from tests.faults.world import NOW, Shape, World

RIVAL, KILLED_RIVAL = "a second driver beside the first", "one of two drivers"
_RIVAL_TURNS = 3


def run_rivals(bench: Bench, shape: Shape, name: str, chance: Random) -> Trial:
    """Start two drivers at once, and again; then run the batch to its end, and compare."""
    expected = bench.undisturbed(shape)
    with bench.world(shape, name) as world:
        disturbed = Disturbed(world, expected, chance)
        for _ in range(_RIVAL_TURNS):
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


FULL, LIMITED, READ_ONLY = "a disk without room", "a limit on the size of files", "a disk that is read-only"
_ROOM = 64 * 2**20
_TURNS = 4


def fill_disks(bench: Bench, shape: Shape, name: str, chance: Random) -> Trial:
    """Run a batch on a disk that has too little room, or none for writing, at various moments; then with room."""
    expected = bench.undisturbed(shape)
    with _small_disk(bench.folder / name) as disk, bench.world(shape, name) as world:
        disturbed = Disturbed(world, expected, chance)
        for _ in range(_TURNS):
            fault, driver = _spoil(disk, chance, world.driver(AtCalls(world.marks)))
            child = Child(driver, leads_group=True)
            try:
                child.end()
            except ChildFailedError:
                disturbed.trial.kills += Counter({fault: 1})
            child.wait_for_group()
            if disk is not None:
                disk.remount("rw", _ROOM)
        return disturbed.compare()


class _Disk:
    """A file system in memory that is mounted on a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def used(self) -> int:
        """Return how many bytes are taken."""
        found = os.statvfs(self._folder)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def remount(self, mode: str, size: int) -> None:
        """Give it another size, or let nobody write to it."""
        options = f"remount,{mode},size={size}"
        subprocess.run(["mount", "-o", options, str(self._folder)], check=True)


@contextmanager
def _small_disk(folder: Path) -> Iterator[_Disk | None]:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={_ROOM}", "none", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        yield None
        return
    try:
        yield _Disk(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _spoil(disk: _Disk | None, chance: Random, driver: Callable[[], None]) -> tuple[str, Callable[[], None]]:
    room = chance.choice((0, 4, 16, 32, 64, 96, 128, 192)) * 1024
    if disk is None:
        return LIMITED, lambda: _limited(driver, room)
    if chance.random() < 0.2:
        disk.remount("ro", _ROOM)
        return READ_ONLY, driver
    disk.remount("rw", disk.used() + room)
    return FULL, driver


def _limited(driver: Callable[[], None], size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    driver()


_BACK, _FORTH = 30 * DAY, 3650 * DAY
"""Not back to before the messages were sent: those are dead letters then, as they should be."""

_TIME = re.compile(r"datetime\.datetime\([^)]*\)")


@dataclass(frozen=True)
class JumpingClock:
    """A clock that shows another time whenever it is looked at."""

    def __call__(self) -> int:
        return NOW() + SystemRandom().randint(-_BACK, _FORTH)


class OutOfTime(World):
    """A batch with such clocks. What has a time in it is compared without."""

    def clock(self) -> Clock:
        """Return the clock of a driver and its workers."""
        return JumpingClock()

    def look(self) -> Found:
        """Return the states, the outcomes and the files."""
        found = super().look()
        outcomes = [_TIME.sub("a time", each) for each in found.outcomes]
        states = dict(wait_for(self.place.store, _states(self.place)))
        return Found(states, sorted(outcomes), found.files)


async def _states(place: TablePlace) -> list[tuple[tuple[str, str], str]]:
    async with connect(place.store) as store:
        table = await store.table(place.table)
        streams = [
            ((each.key, "stream"), repr((each.head.versions, each.head.state)))
            async for each in summaries(table)
        ]
        rows = [row async for page in pages(lambda **given: table.scan(ENTITY, **given)) for row in page.rows]
        entities = [read_entity(row) for row in rows]
        return streams + [
            ((row.partition_key, "entity"), repr((entity.version, entity.state, len(entity.outbox))))
            for row, entity in zip(rows, entities, strict=True)
        ]
