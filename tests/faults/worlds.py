"""Batches, truncations and streams to be disturbed: the log, the store, the outcomes, and what is left at the end.

A stream is run epoch by epoch over a checkpoint as Spark writes it, with the cascade of each epoch. Its driver plans an
epoch, hands it over, and notes in the commit log that it is done. Sometimes the last entry of that log is deleted, so
that an epoch is handed over again which may be published. Halfway the handlers change to a second revision.
"""

import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, cast
from unittest.mock import patch

import pyarrow as pa

from eventstore import connect
from eventstore.port import pages
from eventstore.stream import split_streams
from handlers import App
from runtime.algorithms.choice import AlgorithmName
from runtime.algorithms.outbox.entity import ENTITY, read_entity
from runtime.algorithms.outbox.stores import TokenStore, first_name, first_tokens, with_token
from runtime.algorithms.state_based.truncation import DAY
from runtime.batch_options import BatchOptions, TablePlace, Wrap
from runtime.clock import Clock
from runtime.leases import CleanUpLease
from runtime.ledger.ledger import Ledger
from runtime.spark.scan import FOUND_SCHEMA, Task
from runtime.spark.truncation import TruncationJob, TruncationOptions
from runtime.spark.worker.connection import open_table
from runtime.versions import limits
from runtime.versions.stream import summaries
from samples.shooting_range import app
from samples.shooting_range.log import BEGIN, generate
from tests.faults.compared import Found, look, wait_for
from tests.faults.marks import BEGINNING, TRUNCATION, Marks
from tests.faults.without_spark import (
    NO_SPARK,
    BatchWithoutSpark,
    Partitions,
    Row,
    StreamWithoutSpark,
    noting_deaths,
)
from tests.stream_kills.apps import first, second
from tests.support.checkpoints import TIME, WrittenCheckpoint
from tests.support.clocks import FrozenClock

NOW = FrozenClock.at("2026-02-03T04:05:06")
OLD = FrozenClock.at("2026-01-02T00:00:00")
AGE = 30 * DAY
EPOCHS, OF_FIRST = 6, 3
"""The number of micro-batches, and how many of them the first handlers process."""
BATCH = "night"
ALGORITHMS: tuple[AlgorithmName, ...] = ("state-based", "outbox", "deduplication-store", "tokens")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a batch is given, and by which algorithm it is processed. The same seed gives the same log."""

    algorithm: AlgorithmName
    seed: int
    games: int = 4
    messages: int = 32

    def log(self) -> list[Row]:
        """Return its messages in any order: some twice, a few that cannot be handled."""
        rows = list(generate(self.games, self.messages, duplicates=0.2, shuffle=True, seed=self.seed))
        game = rows[0]["body"]
        poison = [("no such type", "Mislaid", game), ("no body", "FireAt", "{"), ("no game", "FireAt", "{}")]
        rows += [{**rows[0], "message_id": name, "type": of, "body": body} for name, of, body in poison]
        if self.algorithm == "tokens":
            rows = [{**row, "headers": with_token({}, first_name(row["message_id"]))} for row in rows]
        return rows


@dataclass(frozen=True)
class World:
    """A folder for a batch and, unless another store is named, for its store."""

    shape: Shape
    folder: Path
    marks: Marks
    url: str = ""
    table: str = "games"
    log: Sequence[Row] = field(default=(), repr=False)

    @property
    def place(self) -> TablePlace:
        return TablePlace(self.url or f"sqlite:///{self.folder}/store.db", self.table)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def begin(self) -> None:
        """Make its folder and its table, with the tokens of its messages. Call it in a child."""
        (self.folder / "tmp").mkdir()
        connection = open_table(self.place.store, self.place.table)
        if self.shape.algorithm == "tokens":
            tokens = TokenStore(connection.table)
            for message_id, type_ in sorted({(row["message_id"], row["type"]) for row in self.log}):
                handlers = [route.handler for route in app.routes(type_)]
                if handlers:
                    connection.run(tokens.issue(first_tokens(message_id, handlers)))

    def driver(self, wrap: Wrap) -> Callable[[], None]:
        """Return what a driver does: it begins or resumes the batch, and runs it to its end."""
        return partial(self.drive, wrap)

    def drive(self, wrap: Wrap) -> None:
        self.prepare_driver()
        with noting_deaths(self.marks.count_death):
            self.run_batch(BATCH, self.log, self.clock(), wrap)

    def clock(self) -> Clock:
        return NOW

    def run_batch(self, batch_id: str, log: Sequence[Row], clock: Clock, wrap: Wrap | None = None) -> None:
        options = self.options(clock, wrap)
        connection = open_table(self.place.store, self.place.table)
        batch = BatchWithoutSpark(NO_SPARK, app, self.place, str(self.out), options, connection, log)
        batch.drive(batch_id)

    def options(self, clock: Clock, wrap: Wrap | None) -> BatchOptions:
        return BatchOptions(
            cascade=True,
            partitions=2,
            in_flight=4,
            algorithm=self.shape.algorithm,
            clock=clock,
            wrap=wrap,
            step=self.marks.step,
        )

    def look(self) -> Found:
        return look(self.place, self.folder, self.out)

    def prepare_driver(self) -> None:
        """Have temporary files made where they are looked for."""
        os.environ["TMPDIR"] = str(self.folder / "tmp")
        tempfile.tempdir = os.environ["TMPDIR"]  # or Python would try it with a file, and be killed meanwhile
        self.marks.phase = BEGINNING


class Truncated(World):
    """Streams of several runs each, all but the newest of which are cut."""

    def begin(self) -> None:
        """Process some batches, with a run for each commit, as after a year."""
        super().begin()
        with patch.object(limits, "MAX_SEGMENT_BYTES", 0):
            for number in range(4):
                begin = BEGIN + timedelta(hours=number)
                rows = generate(self.shape.games, self.shape.messages, seed=self.shape.seed, begin=begin)
                self.run_batch(f"night-{number}", list(rows), OLD)

    def drive(self, wrap: Wrap) -> None:
        """Truncate, as a driver does; whoever held the lease before is dead, or as good as that."""
        self.prepare_driver()
        self.marks.phase = TRUNCATION
        connection = open_table(self.place.store, self.place.table)
        leases, ledger = CleanUpLease(connection.table, NOW), Ledger(connection.table, NOW)
        lease = connection.run(leases.take("campaign", take_over=True))
        open_batches, now = connection.run(ledger.open_batches()), NOW()
        options = TruncationOptions(older_than=AGE, clock=NOW, wrap=wrap)
        job = TruncationJob(options, now, open_batches, lease.token)
        ranges = connection.run(split_streams(connection.table, 2))
        rows = [{"prefix": each.prefix, "first": each.first, "before": each.before} for each in ranges]
        with noting_deaths(self.marks.count_death):
            schema = pa.schema([(name, pa.string()) for name in ("prefix", "first", "before")])
            tables = [pa.Table.from_pylist([row], schema) for row in rows]
            Partitions(tables).mapInArrow(Task(job, self.place).run, FOUND_SCHEMA).collect()
        connection.run(ledger.prune(now - AGE))
        connection.run(leases.release(lease))


class Streamed(World):
    """A stream of a few epochs. How many are merged follows from its seed."""

    @property
    def out(self) -> Path:
        """Where its outcomes are, beside nothing else that is compared."""
        return self.folder / "kept" / "out"

    @property
    def _written(self) -> WrittenCheckpoint:
        return WrittenCheckpoint(self.folder / "checkpoint")

    def begin(self) -> None:
        """Make its folders, its table and its checkpoint. Call it in a child."""
        super().begin()
        self.out.mkdir(parents=True)
        (self.folder / "incoming").mkdir()
        (WrittenCheckpoint.begun(self.folder / "checkpoint").folder / "commits").mkdir()

    def drive(self, wrap: Wrap) -> None:
        """Go on with the stream until it ends. Call it in a child."""
        self.prepare_driver()
        commits = self.folder / "checkpoint" / "commits"
        done = len(list(commits.iterdir()))
        if done % 2:
            done -= 1
            (commits / str(done)).unlink()
        with noting_deaths(self.marks.count_death):
            self._run(done, OF_FIRST, first, wrap)
            self._run(max(done, OF_FIRST), EPOCHS, second, wrap)

    def _run(self, begin: int, end: int, app: App, wrap: Wrap) -> None:
        """Run epochs with the handlers of an app, as one start of a query."""
        checkpoint, options = str(self._written.folder), self.options(NOW, wrap)
        work = StreamWithoutSpark(
            app, self.place, str(self.out), "shots", checkpoint, 1 + self.shape.seed % 3, options
        )
        for epoch in range(begin, end):
            self.marks.phase = BEGINNING
            file = self.folder / "incoming" / f"{epoch}.jsonl"
            file.touch()
            os.utime(file, ns=(0, TIME * 10**6))
            self._written.plan_files(epoch, file.as_uri())
            work(cast("Any", self.log[epoch::EPOCHS]), epoch)
            (self._written.folder / "commits" / str(epoch)).touch()
        if begin < end:
            work.show_rest()

    def look(self) -> Found:
        return look(self.place, self.folder / "kept", self.out)


_BACK, _FORTH = 30 * DAY, 3650 * DAY
"""Not back to before the messages were sent: those are dead letters then, as they should be."""

_TIME = re.compile(r"datetime\.datetime\([^)]*\)")


@dataclass(frozen=True)
class JumpingClock:
    def __call__(self) -> int:
        return NOW() + SystemRandom().randint(-_BACK, _FORTH)


class OutOfTime(World):
    """A batch with such clocks. What has a time in it is compared without."""

    def clock(self) -> Clock:
        return JumpingClock()

    def look(self) -> Found:
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


def shapes(seed: int, count: int) -> list[Shape]:
    chance = Random(f"{seed} shapes")
    return [Shape(algorithm, chance.randrange(10**9)) for algorithm in ALGORITHMS for _ in range(count)]
