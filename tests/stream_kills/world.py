"""A stream to be disturbed, and the processes that run it: a driver, Spark's Java, and the Python workers.

`python -m tests.stream_kills.world FOLDER SEED ALGORITHM COMPACT_AFTER CORES PARTITIONS BROKER` is a driver. It prints
`ready` when Spark has started. It runs the stream with the first handlers, adds the remaining messages, and runs the
stream with the second handlers; a restarted driver continues where the last one stopped.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple, Self, cast

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from handlers import App
from runtime.algorithms.choice import AlgorithmName
from runtime.batch_options import BatchOptions, TablePlace
from runtime.spark import build_session
from runtime.spark.streaming import Stream, open_source
from samples.shooting_range.log import generate
from tests.faults.compared import Found, look
from tests.plugins.spark import QUICK
from tests.stream_kills.apps import first, second
from tests.support.campaigns import ROOT, children, wait_until
from tests.support.clocks import FrozenClock

NOW = FrozenClock.at("2026-03-01T12:00:00")
FILES, OF_FIRST = 10, 5
"""The number of files of messages, and how many of them the first handlers process."""

Cut = Sequence[Sequence[int]]
"""The numbers of the files of each epoch."""

EACH_ALONE: Cut = [[number] for number in range(FILES)]
"""The epochs of an undisturbed stream: one file each."""

ALGORITHMS: tuple[AlgorithmName, ...] = ("state-based", "state-based", "outbox", "deduplication-store")

_CHECKPOINT = re.compile(r"(checkpoint )[0-9a-f-]{36}")
_BEGUN = 1_767_225_600


class Shape(NamedTuple):
    """The seed of a stream's log, its algorithm, and the number of epochs that are merged."""

    seed: int
    algorithm: AlgorithmName = "state-based"
    compact_after: int = 1

    @classmethod
    def draw(cls, chance: Random) -> Self:
        return cls(chance.randrange(10**9), chance.choice(ALGORITHMS), chance.choice((1, 2)))


@dataclass(frozen=True)
class World:
    """A folder for a stream over a generated log, with duplicates in all files and one message without a handler.

    The files of one epoch are written as one file.
    """

    folder: Path
    shape: Shape
    cut: Cut = field(default_factory=lambda: EACH_ALONE)
    broker: str = ""

    @property
    def place(self) -> TablePlace:
        return TablePlace(f"sqlite:///{self.folder}/store.db", "games")

    @property
    def out(self) -> Path:
        return self.folder / "kept" / "out"

    @property
    def incoming(self) -> Path:
        return self.folder / "incoming"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def rows(self) -> list[str]:
        rows = generate(4, 160, duplicates=0.3, shuffle=True, seed=self.shape.seed)
        lines = [json.dumps(row, default=lambda time: time.isoformat()) for row in rows]
        return [*lines, json.dumps({"message_id": "mislaid", "type": "Mislaid", "body": {}})]

    def begin(self) -> None:
        """Write the files of the first handlers to `incoming`, and the others to `later`."""
        rows = self.rows()
        for numbers in self.cut:
            folder = self.incoming if numbers[0] < OF_FIRST else self.folder / "later"
            folder.mkdir(exist_ok=True, parents=True)
            file = folder / f"{numbers[0]}.jsonl"
            file.write_text("\n".join(row for number in numbers for row in rows[number::FILES]))
            os.utime(file, (_BEGUN + numbers[0],) * 2)  # Spark reads files in the order of their times

    @property
    def is_whole(self) -> bool:
        """Whether all messages have been added."""
        return not list((self.folder / "later").iterdir())

    @property
    def is_for_the_first(self) -> bool:
        """Whether no message of the second handlers has been added."""
        return all(int(file.stem) < OF_FIRST for file in self.incoming.iterdir())

    def add_the_rest(self) -> None:
        """Add the messages that are not added yet: a driver may have been killed while it added them."""
        for file in sorted((self.folder / "later").glob("*.jsonl")):
            file.rename(self.incoming / file.name)

    def source(self, spark: SparkSession) -> DataFrame:
        return open_source(spark, str(self.incoming), "json", max_files=1)

    def run(self, spark: SparkSession, app: App, partitions: int) -> None:
        options = BatchOptions(cascade=True, clock=NOW, partitions=partitions, algorithm=self.shape.algorithm)
        out, checkpoint = str(self.out), str(self.checkpoint)
        stream = Stream(app, self.place, out, "shots", checkpoint, self.shape.compact_after, options)
        stream.run(self.source(spark), "available-now")

    def committed(self) -> list[int]:
        """Return the numbers of the epochs that Spark has committed."""
        return [int(each.name) for each in (self.checkpoint / "commits").glob("*") if each.name.isdecimal()]

    def forget_the_last_commit(self) -> bool:
        """Delete the last commit, as if the driver had died before it; return False if there is none."""
        epochs = self.committed()
        for name in (f"{max(epochs)}", f".{max(epochs)}.crc") if epochs else ():
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)
        return bool(epochs)

    def cut_by_spark(self) -> Cut:
        """Return the files of each epoch that Spark has planned.

        A driver may die after it has chosen the file of an epoch, and before it has planned the epoch. The next driver
        chooses another file, and plans one epoch with both.
        """
        chosen: dict[int, set[int]] = {}
        for log in (self.checkpoint / "sources" / "0").glob("[0-9]*"):
            for line in log.read_text().splitlines()[1:]:
                entry = json.loads(line)
                chosen.setdefault(entry["batchId"], set()).add(int(Path(entry["path"]).stem))
        planned = sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        ends = [json.loads(epoch.read_text().splitlines()[-1])["logOffset"] for epoch in planned]
        return [
            sorted(file for offset in range(begin + 1, end + 1) for file in chosen[offset])
            for begin, end in pairwise([-1, *ends])
        ]

    def look(self) -> Found:
        """Return all rows, outcomes, and files without repetitions: their number depends on the partitions."""
        found = look(self.place, self.folder / "kept", self.out)
        rows = {key: _CHECKPOINT.sub(r"\1*", text) for key, text in found.rows.items()}
        return replace(found, rows=rows, files=sorted(set(found.files)))


@dataclass(frozen=True)
class KafkaWorld(World):
    """The same messages in a topic of two partitions, whose epochs are cut by offset: a kill does not change them."""

    @property
    def topic(self) -> str:
        return f"shots-{self.folder.parent.name}-{self.folder.name}"

    def begin(self) -> None:
        self.folder.mkdir(parents=True)
        admin = AdminClient({"bootstrap.servers": self.broker})
        for made in admin.create_topics([NewTopic(self.topic, 2, 1, config={"retention.ms": "-1"})]).values():
            made.result()
        self._send(OF_FIRST)

    @property
    def is_whole(self) -> bool:
        return self._ends() == [len(lane) for lane in self._lanes(FILES)]

    @property
    def is_for_the_first(self) -> bool:
        return self._ends() == [len(lane) for lane in self._lanes(OF_FIRST)]

    def add_the_rest(self) -> None:
        self._send(FILES)

    def source(self, spark: SparkSession) -> DataFrame:
        most = len(self.rows()) // FILES + 1
        return open_source(spark, f"kafka://{self.broker}/{self.topic}?max={most}")

    def cut_by_spark(self) -> Cut:
        return EACH_ALONE

    def look(self) -> Found:
        found, own = super().look(), re.compile(rf"{re.escape(self.topic)}(=[\w-]+)?")
        rows = {key: own.sub("*", text) for key, text in found.rows.items()}
        return replace(found, rows=rows, outcomes=sorted(own.sub("*", each) for each in found.outcomes))

    def _lanes(self, files: int) -> list[list[str]]:
        """Return the messages of so many files by partition. All messages of a game are in one partition."""
        rows, lanes = self.rows(), list[list[str]](([], []))
        for row in (row for number in range(files) for row in rows[number::FILES]):
            body = json.loads(row)["body"]
            game = json.loads(body)["game_id"] if isinstance(body, str) else ""
            lanes[sum(game.encode()) % 2].append(row)
        return lanes

    def _send(self, files: int) -> None:
        producer = Producer({"bootstrap.servers": self.broker, "enable.idempotence": True})
        for number, (lane, end) in enumerate(zip(self._lanes(files), self._ends(), strict=True)):
            for row in lane[end:]:
                producer.produce(self.topic, row.encode(), partition=number, timestamp=_BEGUN * 1000)
        assert producer.flush(30) == 0

    def _ends(self) -> list[int]:
        client = Consumer({"bootstrap.servers": self.broker, "group.id": "ends"})
        places = [TopicPartition(self.topic, number) for number in range(2)]
        ends: list[int] = []

        def are_known() -> bool:
            with suppress(KafkaException):  # a new topic has no leader at first
                ends[:] = [client.get_watermark_offsets(place, timeout=30)[1] for place in places]
            return bool(ends)

        try:
            assert wait_until(are_known, 60)
            return ends
        finally:
            client.close()


EVERYTHING, DRIVER, JAVA = "driver, Java and workers at once", "driver alone", "Java"
WORKER = "Python worker"
"""The only victim after which the stream continues without a restart."""


class Driver:
    def __init__(self, world: World, *, cores: int, partitions: int) -> None:
        arguments = map(str, (world.folder, *world.shape, cores, partitions, world.broker))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.stream_kills.world", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def has_ended(self, seconds: float) -> bool:
        """Wait up to so many seconds; return whether the driver has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    def kill(self, victim: str, chance: Random) -> bool:
        """Send SIGKILL; return whether the victim was running."""
        java = children(self._process.pid)
        below = [pid for each in java for pid in children(each)]
        workers = [
            worker for parent in below for worker in children(parent) or [parent]
        ]  # the first forks the others
        pids = {
            EVERYTHING: [*workers, *java, self._process.pid],
            DRIVER: [self._process.pid],
            JAVA: java,
            WORKER: [chance.choice(workers)] if workers else [],
        }[victim]
        killed = False
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed = True
        return killed

    def end(self) -> str:
        """Wait for the end; return the standard error of a driver that failed or was killed, otherwise nothing."""
        complaints = self._process.communicate()[1]
        return complaints if self._process.returncode else ""


def main(arguments: list[str]) -> None:
    folder, seed, algorithm, compact_after, cores, partitions, broker = arguments
    shape = Shape(int(seed), cast("AlgorithmName", algorithm), int(compact_after))
    world = (KafkaWorld if broker else World)(Path(folder), shape, broker=broker)
    spark = build_session(f"local[{cores},20]", log_file=world.folder / "spark.log", settings=QUICK)
    print("ready", flush=True)
    if not world.is_whole:
        if world.is_for_the_first:
            world.run(spark, first, int(partitions))
        world.add_the_rest()
    world.run(spark, second, int(partitions))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
