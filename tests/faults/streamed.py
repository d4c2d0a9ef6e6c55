"""Streams without Spark: the shipped micro-batches over a checkpoint as Spark writes it, with the cascade of each.

A driver plans an epoch, hands it over, and notes in the commit log that it is done, as Spark does. Now and then the
last entry of that log is deleted, so that an epoch is handed over again that may be published. In the middle of the
stream the handlers change to a second revision.
"""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from handlers import App
from runtime.batch_options import Wrap
from runtime.spark import batch as rounds
from runtime.spark import streaming
from runtime.spark.batch import Rounds
from runtime.spark.streaming import Stream
from runtime.spark.worker.connection import open_table
from tests.faults.compared import Found, look
from tests.faults.marks import Phase
from tests.faults.without_spark import NO_SPARK, BatchWithoutSpark, Row, noting_deaths
from tests.faults.world import NOW, World
from tests.stream_kills.apps import first, second
from tests.support.checkpoints import TIME, WrittenCheckpoint

EPOCHS, OF_FIRST = 6, 3
"""How many micro-batches there are, and how many of them the first handlers get."""

QUERY = "shots"


@dataclass
class StreamWithoutSpark(Stream):
    """Micro-batches whose messages are in a list."""

    def _prepare_once(self, begun: Rounds, epoch: int) -> None:
        if not self._is_prepared:
            begun.check_table()
            self._is_prepared = True

    def _run(self, messages: Any, epoch: int) -> None:
        routed = self._rounds(messages).routed(messages)
        with (
            patch.object(streaming, "group", return_value=routed),
            patch.object(rounds, "planned_once", nullcontext),
        ):
            super()._run(messages, epoch)

    def _rounds(self, messages: Any) -> BatchWithoutSpark:
        connection = open_table(self.place.store, self.place.table)
        out = self.places.working
        return BatchWithoutSpark(NO_SPARK, self.app, self.place, out, self.options, connection, messages)


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
            app, self.place, str(self.out), QUERY, checkpoint, 1 + self.shape.seed % 3, options
        )
        for epoch in range(begin, end):
            self.marks.phase = Phase.BEGINNING
            file = self.folder / "incoming" / f"{epoch}.jsonl"
            file.touch()
            os.utime(file, ns=(0, TIME * 10**6))
            self._written.plan_files(epoch, file.as_uri())
            work(cast("Any", self._messages(epoch)), epoch)
            (self._written.folder / "commits" / str(epoch)).touch()
        if begin < end:
            work.show_rest()

    def _messages(self, epoch: int) -> Sequence[Row]:
        return self.log[epoch::EPOCHS]

    def look(self) -> Found:
        """Return what there is. Call it in a child."""
        return look(self.place, self.folder / "kept", self.out)
