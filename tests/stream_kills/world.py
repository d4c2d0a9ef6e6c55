"""A stream to be disturbed: its messages, store and outcomes, and the processes of the driver that runs it.

The driver starts Spark's Java, and that the Python workers, of which the first one forks the others.
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
from typing import NamedTuple, Self

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from runtime.algorithms.choice import AlgorithmName
from runtime.batch_options import TablePlace
from runtime.spark.streaming import open_source
from samples.shooting_range.log import generate
from tests.faults.compared import Found, look
from tests.support.clocks import FrozenClock

NOW = FrozenClock.at("2026-03-01T12:00:00")
TABLE = "games"
FILES, OF_FIRST = 10, 5
"""How many files of messages there are, and how many of them the first handlers get."""

Cut = Sequence[Sequence[int]]
"""The numbers of the files that each epoch has."""

EACH_ALONE: Cut = [[number] for number in range(FILES)]
"""How a stream is cut that is not disturbed: it takes one file at a time."""

ALGORITHMS: tuple[AlgorithmName, ...] = ("state-based", "state-based", "outbox", "deduplication-store")
"""Which algorithms are tried, the first one as often as the others together."""

_CHECKPOINT = re.compile(r"(checkpoint )[0-9a-f-]{36}")
_BEGUN = 1_767_225_600


class Shape(NamedTuple):
    """What a stream is like: the seed of its log, its algorithm, and how many epochs are merged."""

    seed: int
    algorithm: AlgorithmName = "state-based"
    compact_after: int = 1

    @classmethod
    def draw(cls, chance: Random) -> Self:
        return cls(chance.randrange(10**9), chance.choice(ALGORITHMS), chance.choice((1, 2)))


@dataclass(frozen=True)
class World:
    """A folder for a stream over a generated log, with duplicates in all files and a message that cannot be handled.

    Files that are to be in one epoch are written as one.
    """

    folder: Path
    shape: Shape
    cut: Cut = field(default_factory=lambda: EACH_ALONE)

    @property
    def place(self) -> TablePlace:
        return TablePlace(f"sqlite:///{self.folder}/store.db", TABLE)

    @property
    def out(self) -> Path:
        return self.folder / "kept" / "out"

    @property
    def incoming(self) -> Path:
        """Where its files are that have come."""
        return self.folder / "incoming"

    @property
    def checkpoint(self) -> Path:
        """Where Spark keeps how far it is."""
        return self.folder / "checkpoint"

    def rows(self) -> list[str]:
        """Return the messages as lines."""
        rows = [_line(row) for row in generate(4, 160, duplicates=0.3, shuffle=True, seed=self.shape.seed)]
        return [*rows, json.dumps({"message_id": "mislaid", "type": "Mislaid", "body": {}})]

    def begin(self) -> None:
        """Write the files: those that the first handlers get, and those that come later."""
        rows = self.rows()
        for numbers in self.cut:
            first = numbers[0]
            folder = self.incoming if first < OF_FIRST else self.folder / "later"
            folder.mkdir(exist_ok=True, parents=True)
            file = folder / f"{first}.jsonl"
            file.write_text("\n".join(row for number in numbers for row in rows[number::FILES]))
            os.utime(file, (_BEGUN + first, _BEGUN + first))  # Spark takes files in the order of their times

    @property
    def is_whole(self) -> bool:
        """Whether all messages have come."""
        return not list((self.folder / "later").iterdir())

    @property
    def is_for_the_first(self) -> bool:
        """Whether none has come of the files that the second handlers get."""
        return all(int(file.stem) < OF_FIRST for file in self.incoming.iterdir())

    def let_the_rest_come(self) -> None:
        """Move the files that come later to where they are taken from, those that are still away."""
        for file in sorted((self.folder / "later").glob("*.jsonl")):
            file.rename(self.incoming / file.name)

    def source(self, spark: SparkSession) -> DataFrame:
        """Return the messages as a stream."""
        return open_source(spark, str(self.incoming), "json", max_files=1)

    @property
    def commits(self) -> int:
        """How many epochs Spark has committed."""
        return len(self._committed())

    def forget_the_last_commit(self) -> bool:
        """Leave the checkpoint as when the driver dies after an epoch was published, before Spark knows of it."""
        epochs = self._committed()
        if not epochs:
            return False
        for name in (f"{max(epochs)}", f".{max(epochs)}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)
        return True

    def _committed(self) -> list[int]:
        return [int(each.name) for each in (self.checkpoint / "commits").glob("*") if each.name.isdecimal()]

    def cut_by_spark(self) -> Cut:
        """Return the files of each epoch that Spark has planned.

        A driver that dies when it has chosen the file of an epoch, and has not noted the epoch yet, leaves the file to
        the one that is started next, which chooses another one, and plans an epoch of both.
        """
        chosen: dict[int, set[int]] = {}
        for log in (self.checkpoint / "sources" / "0").glob("[0-9]*"):
            for line in log.read_text().splitlines()[1:]:
                entry = json.loads(line)
                chosen.setdefault(entry["batchId"], set()).add(int(Path(entry["path"]).stem))
        noted = (self.checkpoint / "offsets").glob("[0-9]*")
        ends = [
            json.loads(epoch.read_text().splitlines()[-1])["logOffset"]
            for epoch in sorted(noted, key=lambda path: int(path.name))
        ]
        return [
            sorted(file for offset in range(begin + 1, end + 1) for file in chosen[offset])
            for begin, end in pairwise([-1, *ends])
        ]

    def look(self) -> Found:
        """Return all rows of the table, all outcomes, and the files in which they are.

        How many files a round has depends on the partitions, which differ from start to start.
        """
        found = look(self.place, self.folder / "kept", self.out)
        rows = {key: _CHECKPOINT.sub(r"\1*", text) for key, text in found.rows.items()}
        return replace(found, rows=rows, files=sorted(set(found.files)))


@dataclass(frozen=True)
class KafkaWorld(World):
    """The same messages in a topic of two partitions. Epochs go by offsets, so a kill does not cut others."""

    broker: str = ""

    @property
    def topic(self) -> str:
        return f"shots-{self.folder.parent.name}-{self.folder.name}"

    def begin(self) -> None:
        """Make the topic, and send what the first handlers get."""
        self.folder.mkdir(parents=True)
        admin = AdminClient({"bootstrap.servers": self.broker})
        for made in admin.create_topics([NewTopic(self.topic, 2, 1, config={"retention.ms": "-1"})]).values():
            made.result()
        self._send(self._lanes(OF_FIRST))

    @property
    def is_whole(self) -> bool:
        return self._ends() == [len(lane) for lane in self._lanes(FILES)]

    @property
    def is_for_the_first(self) -> bool:
        return self._ends() == [len(lane) for lane in self._lanes(OF_FIRST)]

    def let_the_rest_come(self) -> None:
        """Send what was not sent yet: a driver may have been killed while it sent."""
        self._send(self._lanes(FILES))

    def source(self, spark: SparkSession) -> DataFrame:
        most = len(self.rows()) // FILES + 1
        return open_source(spark, f"kafka://{self.broker}/{self.topic}?max={most}")

    def cut_by_spark(self) -> Cut:
        return EACH_ALONE

    def look(self) -> Found:
        found, own = super().look(), re.compile(rf"{re.escape(self.topic)}(=[\w-]+)?")
        rows = {key: own.sub("*", text) for key, text in found.rows.items()}
        outcomes = sorted(own.sub("*", each) for each in found.outcomes)
        return replace(found, rows=rows, outcomes=outcomes)

    def _lanes(self, files: int) -> list[list[str]]:
        """Return the messages of so many files, by partition: those of a game are in one."""
        rows, lanes = self.rows(), list[list[str]](([], []))
        for row in (row for number in range(files) for row in rows[number::FILES]):
            body = json.loads(row)["body"]
            game = json.loads(body)["game_id"] if isinstance(body, str) else ""
            lanes[sum(game.encode()) % 2].append(row)
        return lanes

    def _send(self, lanes: Sequence[Sequence[str]]) -> None:
        producer = Producer({"bootstrap.servers": self.broker, "enable.idempotence": True})
        for number, (lane, end) in enumerate(zip(lanes, self._ends(), strict=True)):
            for row in lane[end:]:
                producer.produce(self.topic, row.encode(), partition=number, timestamp=_BEGUN * 1000)
        assert producer.flush(30) == 0

    def _ends(self) -> list[int]:
        client = Consumer({"bootstrap.servers": self.broker, "group.id": "ends"})
        try:
            places = (TopicPartition(self.topic, number) for number in range(2))
            return [client.get_watermark_offsets(place, timeout=30)[1] for place in places]
        finally:
            client.close()


def _line(row: dict[str, object]) -> str:
    return json.dumps(row, default=lambda time: time.isoformat())


ROOT = Path(__file__).parents[2]


class Victim(NamedTuple):
    """What is killed, and whether the stream must be started again then."""

    name: str
    ends_the_driver: bool


EVERYTHING = Victim("driver, Java and workers at once", ends_the_driver=True)
DRIVER = Victim("driver alone", ends_the_driver=True)
JAVA = Victim("Java", ends_the_driver=True)
WORKER = Victim("Python worker", ends_the_driver=False)


class Driver:
    """A process that runs a stream, in a group of its own."""

    def __init__(self, world: World, *, cores: int, partitions: int) -> None:
        broker = world.broker if isinstance(world, KafkaWorld) else ""
        arguments = map(str, (world.folder, *world.shape, cores, partitions, broker))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.stream_kills.driver", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_until_ready(self) -> None:
        """Wait until Spark has started, or the driver ended."""
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def has_ended(self, seconds: float) -> bool:
        """Wait so long at most; say whether it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    def kill(self, victim: Victim, chance: Random) -> bool:
        """Send SIGKILL; say whether there was something to be killed."""
        java = _children(self._process.pid)
        pids = {
            EVERYTHING: [*self._workers(), *java, self._process.pid],
            DRIVER: [self._process.pid],
            JAVA: java,
            WORKER: [chance.choice(self._workers() or [0])],
        }[victim]
        killed = False
        for pid in filter(None, pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed = True
        return killed

    def end(self) -> str:
        """Wait for the end, and return what it had to complain about; empty when it did all that it should."""
        complaints = self._process.communicate()[1]
        return complaints if self._process.returncode else ""

    def _workers(self) -> list[int]:
        """Return Python's processes below Java that have none below them: the workers, or their parent alone."""
        below = [pid for java in _children(self._process.pid) for pid in _children(java)]
        return [worker for parent in below for worker in _children(parent) or [parent]]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
