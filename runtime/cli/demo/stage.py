"""What the demo works with: it writes logs, runs batches over them, cuts streams, and looks at what is stored."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from handlers import App
from runtime.cli.demo.comparison import StateDigest
from runtime.cli.demo.folder import DemoFolder
from runtime.cli.demo.leader_board import Score, best_scores
from runtime.cli.reports.batch import BatchReport
from runtime.cli.reports.truncation import TruncationReport
from runtime.cli.sample_log import SHOOTING_RANGE_LOG, generate_log
from runtime.cli.stores import on_table

if TYPE_CHECKING:
    from runtime.cli.sessions import ShownSession
    from runtime.spark.rounds import BatchResult

TABLE = "games"
GAMES, MESSAGES, DUPLICATES, SEED = 500, 20_000, 0.1, 1
LATER_MESSAGES = 2_000

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Stage:
    """An app, a folder with a store, and a Spark session whose progress is shown."""

    app: App
    folder: DemoFolder
    shown: ShownSession

    def first_day(self) -> Iterator[dict[str, Any]]:
        """Give the deliveries of the first day: a tenth of the messages twice, and all in no order."""
        return generate_log(GAMES, MESSAGES, duplicates=DUPLICATES, shuffle=True, seed=SEED)

    def next_day(self) -> Iterator[dict[str, Any]]:
        """Give new messages to the same games, a day later."""
        begin = importlib.import_module(SHOOTING_RANGE_LOG).BEGIN + _DAY
        return generate_log(GAMES, LATER_MESSAGES, seed=SEED, begin=begin)

    def write(self, name: str, rows: Iterable[dict[str, Any]]) -> int:
        """Write a log, and return how many deliveries it has."""
        from runtime.spark.logs.files import write_log

        return write_log(rows, self.folder.log(name))

    def run(self, log: str, batch_id: str) -> tuple[BatchResult, BatchReport]:
        """Run a batch with its cascade over a log."""
        from runtime.spark import Batch, BatchOptions

        spark, progress = self.shown
        progress.step("Reading the log")
        options = BatchOptions(cascade=True, step=progress.step)
        batch = Batch(spark, self.app, self.folder.store, TABLE, self.folder.outcomes, options)
        result = batch.run(str(self.folder.log(log)), batch_id)
        report = BatchReport.of(result)
        progress.done()
        return result, report

    def cut(self) -> TruncationReport:
        """Cut all that is not in the newest run of its stream, however young it is."""
        from runtime.spark import truncate

        spark, progress = self.shown
        progress.step("Cutting")
        cut = truncate(spark, store=self.folder.store, table=TABLE, older_than=0, allow_young=True)
        report = TruncationReport(cut.counts, cut.requests, dry_run=False)
        progress.done()
        return report

    def states(self) -> StateDigest:
        """Return the digest of all states as they are now."""
        return on_table(self.folder.store, TABLE, StateDigest.of)

    def best_scores(self) -> list[Score]:
        """Return the top of the leader board."""
        return on_table(self.folder.store, TABLE, best_scores)
