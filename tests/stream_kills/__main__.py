"""`python -m tests.stream_kills --kills 200`: kill the processes of streams at random, and compare the ends.

A stream over files, or with `--kafka` over a topic, has a cascade, duplicates and a dead letter; halfway the handlers
change to a second revision. Drivers, Java and Python workers are sent SIGKILL, and sometimes the last entry of Spark's
commit log is deleted. Each restart has other numbers of cores and partitions. At the end all rows of the table, all
outcomes and all files in OUT are compared with those of the undisturbed stream, cut into the same epochs.

An interrupted campaign resumes from its folder of results. The totals are written to docs/faults.md. The exit code is 1
if anything differs. The seed draws logs, victims and moments; the state of a process at a moment also depends on the
machine's load. It needs Linux.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from tests.faults.compared import Found
from tests.plugins.kafka import running_kafka
from tests.stream_kills.world import (
    DRIVER,
    EACH_ALONE,
    EVERYTHING,
    FILES,
    JAVA,
    WORKER,
    Driver,
    KafkaWorld,
    Shape,
    World,
)
from tests.support.campaigns import ROOT, Record, Trial, options, rewrite

PAGE = ROOT / "docs" / "faults.md"
VICTIMS = (EVERYTHING, DRIVER, JAVA, WORKER, WORKER, WORKER, WORKER, WORKER)
FORGOTTEN = "the last entry of the commit log, deleted"
CUT_OTHERWISE = "a stream with two files in an epoch, as Spark planned after a kill"
_AT_ONCE = 15
"""The number of kills after which a stream may run to its end."""

_STREAMS_OF_A_SHAPE = 4
_LOOK_EVERY_SECONDS = 0.2


class Disturbed:
    """A stream that is killed, and restarted with another parallelism. `expected` took `seconds` undisturbed."""

    def __init__(self, world: World, expected: Found, seconds: float, chance: Random) -> None:
        self.trial = Trial()
        self._world = world
        self._expected = expected
        self._seconds = seconds
        self._chance = chance

    def run(self, wanted: int) -> Trial:
        self._world.begin()
        while kills_of(self.trial) < wanted and self._kill_until_it_ends():
            pass
        if complaints := self._start().end():
            self.trial.differences.append(complaints)
        expected, cut = self._expected, self._world.cut_by_spark()
        if cut != EACH_ALONE:
            self.trial.kills[CUT_OTHERWISE] += 1
            folder = self._world.folder.with_name(f"{self._world.folder.name}-as-cut")
            expected, _ = undisturbed(replace(self._world, folder=folder, cut=cut))
        self.trial.differences += self._world.look().differences(expected)
        return self.trial

    def _kill_until_it_ends(self) -> bool:
        """Start the stream, and kill until it must be restarted; return False if it reached its end."""
        driver = self._start()
        driver.wait_until_ready()
        while not self._ends_before_the_moment(driver):
            victim = self._chance.choice(VICTIMS)
            if driver.kill(victim, self._chance):
                self.trial.kills[victim] += 1
            if victim != WORKER:
                driver.end()
                if self._chance.random() < 1 / 2 and self._world.forget_the_last_commit():
                    self.trial.kills[FORGOTTEN] += 1
                return True
        return bool(driver.end())

    def _ends_before_the_moment(self, driver: Driver) -> bool:
        """Wait for some epochs and a part of the next one, so that kills hit all epochs."""
        wanted = len(self._world.committed()) + self._chance.choice((0, 0, 1, 2))
        while len(self._world.committed()) < wanted:
            if driver.has_ended(_LOOK_EVERY_SECONDS):
                return True
        return driver.has_ended(self._chance.uniform(0, self._seconds / FILES))

    def _start(self) -> Driver:
        return Driver(self._world, cores=self._chance.randint(1, 3), partitions=self._chance.randint(1, 4))


def kills_of(done: Trial | Record) -> int:
    """Return how many times processes were killed; all processes at once count as one kill."""
    return done.kills.total() - done.kills[FORGOTTEN] - done.kills[CUT_OTHERWISE]


def undisturbed(world: World) -> tuple[Found, float]:
    """Run a stream to its end; return what it leaves, and the seconds it took once Spark had started."""
    world.begin()
    driver = Driver(world, cores=2, partitions=2)
    driver.wait_until_ready()
    begun = time.monotonic()
    if complaints := driver.end():
        raise RuntimeError(complaints)
    return world.look(), time.monotonic() - begun


def run(record: Record, file: Path, wanted: int, seed: int, make: Callable[[Path, Shape], World]) -> None:
    """Disturb streams until there are so many kills, or an end differs. Four streams share an undisturbed one."""
    while kills_of(record) < wanted and not record.differing:
        begun = time.monotonic()
        shape = Shape.draw(Random(f"{seed} {record.trials // _STREAMS_OF_A_SHAPE}"))
        with tempfile.TemporaryDirectory(prefix="stream-kills-", ignore_cleanup_errors=True) as made:
            expected = undisturbed(make(Path(made) / "undisturbed", shape))
            for _ in range(_STREAMS_OF_A_SHAPE):
                chance, world = Random(f"{seed} stream {record.trials}"), f"disturbed-{record.trials}"
                disturbed = Disturbed(make(Path(made) / world, shape), *expected, chance)
                trial = disturbed.run(min(_AT_ONCE, wanted - kills_of(record)))
                record.add(trial, time.monotonic() - begun)
                record.write(file)
                killed = ", ".join(f"{count} {name}" for name, count in sorted(record.kills.items()))
                print(f"{kills_of(record)} kills in {record.trials} streams ({killed})", flush=True)
                begun = time.monotonic()
                if kills_of(record) >= wanted or record.differing:
                    break


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
    parser = options("tests.stream_kills", str(__doc__))
    parser.add_argument("--kills", type=int, default=200, help="the minimum number of kills")
    parser.add_argument("--kafka", action="store_true", help="a topic of a real broker instead of files")
    given = parser.parse_args(arguments)
    part, name = ("stream kills on Kafka", "topics") if given.kafka else ("stream kills", "streams")
    file = given.results / f"seed-{given.seed}" / f"{name}.json"
    record = Record.read(file)
    with running_kafka() if given.kafka else nullcontext() as kafka:
        make = World if kafka is None else partial(KafkaWorld, broker=kafka.address)
        run(record, file, given.kills, given.seed, make)
    if not given.dry:
        rewrite(part, "\n".join(_totals(record)), PAGE)
        print(f"Written to docs/{PAGE.name}.")
    print(*record.differences or ["Nothing differs."], sep="\n")
    return 1 if record.differing else 0


if __name__ == "__main__":
    sys.exit(main())
