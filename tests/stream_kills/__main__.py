"""`python -m tests.stream_kills --kills 200`: kill what a stream consists of at random moments, and compare its end.

A stream over files, or with `--kafka` over a topic of a real broker, with a cascade, duplicates and a letter, in the
middle of which the handlers change to a second revision. Drivers, Java and Python workers are sent SIGKILL; now and
then the last entry of Spark's commit log is deleted; each restart has other numbers of cores and partitions. When the
stream has ended, all rows of the table, all outcomes with their outputs and ids, and all files in OUT are compared
with those of the stream undisturbed, cut into the same epochs.

It goes on where it was stopped: what was done is kept in a folder, by the seed, and the totals are written to
docs/faults.md. The exit code is 1 when something differs. The seed draws logs, victims and moments; what a process
is doing at such a moment depends on the machine's load, too. It needs Linux.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.faults.campaign import Record
from tests.faults.compared import Found
from tests.faults.trial import Trial
from tests.model.pages import rewrite
from tests.plugins.kafka import running_kafka
from tests.stream_kills.world import (
    DRIVER,
    EACH_ALONE,
    EVERYTHING,
    FILES,
    JAVA,
    ROOT,
    WORKER,
    Driver,
    KafkaWorld,
    Shape,
    World,
)

PAGE = ROOT / "docs" / "faults.md"
FILES_PART, KAFKA_PART = "stream kills", "stream kills on Kafka"
VICTIMS = (EVERYTHING, DRIVER, JAVA, WORKER, WORKER, WORKER, WORKER, WORKER)
FORGOTTEN = "the last entry of the commit log, deleted"
CUT_OTHERWISE = "a stream with two files in an epoch, as Spark planned after a kill"
_AT_ONCE = 15
"""How many kills a stream gets, after which it is let to its end."""

_STREAMS_OF_A_SHAPE = 4
_LOOK_EVERY_SECONDS = 0.2


class Undisturbed(NamedTuple):
    """A stream that was not disturbed: what there is then, and how long it took once Spark had started."""

    found: Found
    seconds: float


class Disturbed:
    """A stream whose driver, Java and workers are killed, and which is started again with other parallelism."""

    def __init__(self, world: World, expected: Undisturbed, chance: Random) -> None:
        self.trial = Trial()
        self._world = world
        self._expected = expected
        self._chance = chance

    @property
    def kills(self) -> int:
        """How many times something was killed; entries of the commit log are not counted."""
        return kills_of(self.trial)

    def run(self, wanted: int) -> Trial:
        """Disturb the stream until so much was killed, let it go on to its end, and compare."""
        self._world.begin()
        while self.kills < wanted and self._kill_until_it_ends():
            pass
        complaints = self._start().end()
        if complaints:
            self.trial.differences.append(complaints)
        self.trial.differences += self._world.look().differences(self._undisturbed())
        return self.trial

    def _undisturbed(self) -> Found:
        """Return what the stream ends in undisturbed, with epochs of the same files."""
        cut = self._world.cut_by_spark()
        if cut == EACH_ALONE:
            return self._expected.found
        self.trial.kills[CUT_OTHERWISE] += 1
        folder = self._world.folder.with_name(f"{self._world.folder.name}-as-cut")
        return undisturbed(replace(self._world, folder=folder, cut=cut)).found

    def _kill_until_it_ends(self) -> bool:
        """Start the stream and kill until it must be started again; say whether it is unfinished then."""
        driver = self._start()
        driver.wait_until_ready()
        while not self._ends_before_the_moment(driver):
            victim = self._chance.choice(VICTIMS)
            if driver.kill(victim, self._chance):
                self.trial.kills[victim.name] += 1
            if victim.ends_the_driver:
                driver.end()
                if self._chance.random() < 1 / 2 and self._world.forget_the_last_commit():
                    self.trial.kills[FORGOTTEN] += 1
                return True
        return bool(driver.end())

    def _ends_before_the_moment(self, driver: Driver) -> bool:
        """Wait until some epochs more are committed, and for a part of the next one: kills are to meet them all."""
        wanted = self._world.commits + self._chance.choice((0, 0, 1, 2))
        while self._world.commits < wanted:
            if driver.has_ended(_LOOK_EVERY_SECONDS):
                return True
        return driver.has_ended(self._chance.uniform(0, self._expected.seconds / FILES))

    def _start(self) -> Driver:
        return Driver(self._world, cores=self._chance.randint(1, 3), partitions=self._chance.randint(1, 4))


def kills_of(done: Trial | Record) -> int:
    """Return how many times a process was killed, or all of them at once."""
    return done.kills.total() - done.kills[FORGOTTEN] - done.kills[CUT_OTHERWISE]


def undisturbed(world: World) -> Undisturbed:
    """Run a stream to its end, and let nobody disturb it."""
    world.begin()
    driver = Driver(world, cores=2, partitions=2)
    driver.wait_until_ready()
    begun = time.monotonic()
    complaints = driver.end()
    if complaints:
        raise RuntimeError(complaints)
    return Undisturbed(world.look(), time.monotonic() - begun)


Make = Callable[[Path, Shape], World]


def run(record: Record, file: Path, wanted: int, seed: int, make: Make = World) -> None:
    """Disturb streams until so much was killed, or something differs; several are like the same undisturbed one."""
    while not _is_done(record, wanted):
        begun = time.monotonic()
        shape = Shape.draw(Random(f"{seed} {record.trials // _STREAMS_OF_A_SHAPE}"))
        with tempfile.TemporaryDirectory(prefix="stream-kills-", ignore_cleanup_errors=True) as made:
            expected = undisturbed(make(Path(made) / "undisturbed", shape))
            for _ in range(_STREAMS_OF_A_SHAPE):
                chance, number = Random(f"{seed} stream {record.trials}"), record.trials
                disturbed = Disturbed(make(Path(made) / f"disturbed-{number}", shape), expected, chance)
                trial = disturbed.run(min(_AT_ONCE, wanted - kills_of(record)))
                record.add(trial, time.monotonic() - begun)
                record.write(file)
                print(_sentence(record), flush=True)
                begun = time.monotonic()
                if _is_done(record, wanted):
                    break


def _is_done(record: Record, wanted: int) -> bool:
    return kills_of(record) >= wanted or record.differing > 0


def _sentence(record: Record) -> str:
    killed = ", ".join(f"{count} {name}" for name, count in sorted(record.kills.items()))
    return f"{kills_of(record)} kills in {record.trials} streams ({killed}), {record.seconds:,.0f} s"


def write_page(page: Path, record: Record, part: str = FILES_PART) -> None:
    """Put the totals into the page."""
    rewrite(part, "\n".join(_totals(record)), page)


def _totals(record: Record) -> Iterator[str]:
    yield "| victim or disturbance | times |"
    yield "|---|---:|"
    for name, count in sorted(record.kills.items()):
        yield f"| {name} | {count} |"
    yield f"| **kills** | **{kills_of(record)}** |"
    yield f"| streams compared | {record.trials} |"
    yield f"| streams that differ | {record.differing} |"
    yield f"| minutes | {record.seconds / 60:.0f} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.stream_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many times something is killed at least")
    parser.add_argument("--seed", type=int, default=1, help="what is drawn at random follows from it")
    parser.add_argument(
        "--results", type=Path, default=ROOT / ".faults", help="where it is kept what was done"
    )
    parser.add_argument("--kafka", action="store_true", help="a topic of a real broker instead of files")
    parser.add_argument("--dry", action="store_true", help="leave docs/faults.md unchanged")
    options = parser.parse_args(arguments)
    part = KAFKA_PART if options.kafka else FILES_PART
    file = options.results / f"seed-{options.seed}" / f"{'topics' if options.kafka else 'streams'}.json"
    record = Record.read(file)
    with running_kafka() if options.kafka else nullcontext() as kafka:
        make = World if kafka is None else partial(KafkaWorld, broker=kafka.address)
        run(record, file, options.kills, options.seed, make)
    if not options.dry:
        write_page(PAGE, record, part)
        print(f"Written to docs/{PAGE.name}.")
    print(*record.differences or ["Nothing differs."], sep="\n")
    return 1 if record.differing else 0


if __name__ == "__main__":
    sys.exit(main())
