"""Disks that are full, or go read-only: small ones in memory, which only root can mount; else a limit on files."""

from __future__ import annotations

import os
import resource
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tests.faults.children import Child, ChildFailedError
from tests.faults.moments import AtCalls
from tests.faults.trial import Bench, Disturbed, Trial
from tests.faults.world import Shape

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
