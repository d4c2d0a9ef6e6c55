"""A batch to be disturbed: its log, its store, its folder of outcomes, and what is there when it has ended."""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from runtime.algorithms.choice import AlgorithmName
from runtime.algorithms.outbox.stores import TokenStore, first_name, first_tokens, with_token
from runtime.batch_options import BatchOptions, TablePlace, Wrap
from runtime.clock import Clock
from runtime.spark.worker.connection import open_table
from samples.shooting_range import app
from samples.shooting_range.log import generate
from tests.faults.compared import Found, look
from tests.faults.marks import Marks, Phase
from tests.faults.without_spark import NO_SPARK, BatchWithoutSpark, Row, noting_deaths
from tests.support.clocks import FrozenClock

NOW = FrozenClock.at("2026-02-03T04:05:06")
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
        """Be a driver. Call it in a child."""
        self.prepare_driver()
        with noting_deaths(self.marks.count_death):
            self.run_batch(BATCH, self.log, self.clock(), wrap)

    def clock(self) -> Clock:
        """Return the clock of a driver and its workers."""
        return NOW

    def run_batch(self, batch_id: str, log: Sequence[Row], clock: Clock, wrap: Wrap | None = None) -> None:
        options = self.options(clock, wrap)
        connection = open_table(self.place.store, self.place.table)
        batch = BatchWithoutSpark(NO_SPARK, app, self.place, str(self.out), options, connection, log)
        batch.drive(batch_id)

    def options(self, clock: Clock, wrap: Wrap | None) -> BatchOptions:
        """Return what its batches are told."""
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
        """Return what there is. Call it in a child."""
        return look(self.place, self.folder, self.out)

    def prepare_driver(self) -> None:
        """Have temporary files made where they are looked for."""
        os.environ["TMPDIR"] = str(self.folder / "tmp")
        tempfile.tempdir = os.environ["TMPDIR"]  # or Python would try it with a file, and be killed meanwhile
        self.marks.phase = Phase.BEGINNING


def shapes(seed: int, count: int) -> list[Shape]:
    """Return the batches of a campaign: `count` logs for each algorithm."""
    chance = Random(f"{seed} shapes")
    return [Shape(algorithm, chance.randrange(10**9)) for algorithm in ALGORITHMS for _ in range(count)]
