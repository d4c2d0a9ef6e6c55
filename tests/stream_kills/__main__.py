"""`python -m tests.stream_kills --kills 200`: kill what a stream consists of at random moments, and compare its end.

A stream over files, with a cascade, duplicates and a letter, in the middle of which the handlers change to a second
revision. Drivers, Java and Python workers are sent SIGKILL; now and then the last entry of Spark's commit log is
deleted; each restart has other numbers of cores and partitions. When the stream has ended, all rows of the table, all
outcomes with their outputs and ids, and all files in OUT are compared with those of the stream undisturbed.

The exit code is 1 when something differs. The seed draws logs, victims and moments. It needs Linux.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.faults.compared import Found
from tests.stream_kills.victims import DRIVER, EVERYTHING, JAVA, WORKER, Driver
from tests.stream_kills.world import World

_FORGOTTEN = "entry of the commit log"
_AT_ONCE = 10
"""How many kills a stream gets, after which it is let to its end."""


@dataclass
class Campaign:
    """Streams that were disturbed, each compared with the same one undisturbed."""

    chance: Random
    killed: Counter[str] = field(default_factory=Counter)
    streams: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        """How many processes were killed; entries of the commit log are not counted."""
        return self.killed.total() - self.killed[_FORGOTTEN]

    def run(self, folder: Path, wanted: int) -> None:
        """Disturb streams over one log until so many processes more are killed, some of them with compaction."""
        compact_after = self.chance.choice((1, 2))
        seed = self.chance.randrange(10**9)
        begun = time.monotonic()
        expected = _undisturbed(World(folder / "undisturbed", seed, compact_after))
        seconds = time.monotonic() - begun
        world = World(folder / "disturbed", seed, compact_after)
        world.begin()
        enough = self.kills + wanted
        while self.kills < enough and self._disturb(world, seconds):
            pass
        self._let_end(world)
        self.streams += 1
        self.differences += [f"seed {seed}: {each}" for each in world.look().differences(expected)]

    def _disturb(self, world: World, seconds: float) -> bool:
        """Start the stream and kill until it must be started again; say whether it is unfinished then."""
        driver = self._start(world)
        while driver.is_ready() or not driver.has_ended(0):
            victim = self.chance.choice((EVERYTHING, DRIVER, JAVA, WORKER, WORKER))
            if driver.has_ended(self.chance.uniform(0, seconds / 4)):
                break
            if driver.kill(victim, self.chance):
                self.killed[victim.name] += 1
            if victim.ends_the_driver:
                driver.end()
                if self.chance.random() < 1 / 2 and world.forget_the_last_commit():
                    self.killed[_FORGOTTEN] += 1
                return True
        return bool(driver.end())

    def _let_end(self, world: World) -> None:
        complaints = self._start(world).end()
        if complaints:
            self.differences.append(complaints)

    def _start(self, world: World) -> Driver:
        cores, partitions = self.chance.randint(1, 3), self.chance.randint(1, 4)
        return _driver(world, cores, partitions)


def _undisturbed(world: World) -> Found:
    world.begin()
    complaints = _driver(world, cores=2, partitions=2).end()
    if complaints:
        raise RuntimeError(complaints)
    return world.look()


def _driver(world: World, cores: int, partitions: int) -> Driver:
    return Driver(str(world.folder), str(world.compact_after), str(cores), str(partitions))


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.stream_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many processes are killed at least")
    parser.add_argument("--seed", type=int, default=1, help="what is drawn at random follows from it")
    options = parser.parse_args(arguments)
    campaign = Campaign(Random(options.seed))
    while campaign.kills < options.kills and not campaign.differences:
        with tempfile.TemporaryDirectory(prefix="stream-kills-", ignore_cleanup_errors=True) as folder:
            campaign.run(Path(folder), min(_AT_ONCE, options.kills - campaign.kills))
        killed = ", ".join(f"{count} {name}" for name, count in sorted(campaign.killed.items()))
        print(f"{campaign.kills} kills in {campaign.streams} streams ({killed})", flush=True)
    print(*campaign.differences or ["Nothing differs."], sep="\n")
    return 1 if campaign.differences else 0


if __name__ == "__main__":
    sys.exit(main())
