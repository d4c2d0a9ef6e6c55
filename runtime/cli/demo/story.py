"""The steps of the demo, in the order they are told."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from handlers import App
from runtime.cli.batch_report import BatchReport
from runtime.cli.commands.sample import generate_log
from runtime.cli.console import Screen
from runtime.cli.demo.evidence import Comparison, OutputEvidence, StateEvidence
from runtime.cli.demo.folder import DemoFolder
from runtime.cli.demo.leader_board import Score, best_scores, table_of_scores
from runtime.cli.demo.narration import Narration
from runtime.cli.failures import NotPossibleError
from runtime.cli.stores import on_table
from runtime.cli.tables import make_table
from runtime.cli.truncation_report import TruncationReport
from runtime.outcome import Status

if TYPE_CHECKING:
    from runtime.spark.batch import BatchResult
    from runtime.spark.progress import ShownSession

TABLE = "games"
GAMES, MESSAGES, DUPLICATES, SEED = 500, 20_000, 0.1, 1
LATER_MESSAGES = 2_000
REDELIVERED = 1_000
_NEXT_DAY = timedelta(days=1)


@dataclass
class Story:
    """The demo as it goes on: each step is shown, and put into the document for `--json`."""

    app: App
    folder: DemoFolder
    shown: ShownSession
    narration: Narration
    screen: Screen
    document: dict[str, Any] = field(default_factory=dict)

    def tell(self) -> None:
        """Tell all steps. Raises `NotPossibleError` when something does not come out as it must."""
        self.write_log()
        first = self.run_batch()
        self.run_again(first)
        self.run_next_day()
        self.truncate()
        self.redeliver()
        self.finish()

    def write_log(self) -> None:
        """Write the log of the first day."""
        self.narration.begin("A message log", "As a queue may deliver it: late, twice, and in no order.")
        count = self._write(
            "log", generate_log(GAMES, MESSAGES, duplicates=DUPLICATES, shuffle=True, seed=SEED)
        )
        self.document["log"] = {"games": GAMES, "messages": MESSAGES, "deliveries": count}
        self.screen.show(
            f"{count:,} deliveries of {MESSAGES:,} messages to {GAMES} games, shuffled: {self.folder.log('log')}"
        )

    def run_batch(self) -> BatchResult:
        """Run the log for the first time."""
        self.narration.begin(
            "The batch",
            "Every new message is handled on the newest state and adds a version. What ShootingRange publishes, Hit "
            "and Missed, LeaderBoard handles in the next round.",
        )
        return self._run("first", "log")

    def run_again(self, first: BatchResult) -> None:
        """Run the same log as a new batch, and compare what it gave and what it left."""
        self.narration.begin(
            "The same log again",
            "Every delivery is a duplicate now. Each is handled again on the version just before its own: the same "
            "outputs with the same ids, and nothing is stored.",
        )
        states_before = self._states()
        second = self._run("second", "log")
        outputs = OutputEvidence.of(first), OutputEvidence.of(second)
        compared = Comparison(outputs, (states_before, self._states()))
        self.screen.show(make_table("Both runs compared", ("", "first", "second", "same"), compared.rows()))
        counts = self.document["second"]["counts"]
        only_duplicates = not any(
            count for name, count in counts.items() if name not in ("duplicate", "outputs")
        )
        self.document["compared"] = {
            "only_duplicates": only_duplicates,
            "same_outputs": compared.same_outputs,
            "same_states": compared.same_states,
            "outputs": [asdict(each) for each in compared.outputs],
            "states": [asdict(each) for each in compared.states],
        }
        if not (only_duplicates and compared.same_outputs and compared.same_states):
            raise NotPossibleError(
                "The second run did not give what the first one gave: this must not happen."
            )

    def run_next_day(self) -> None:
        """Run a small log of the next day, so that the first day's versions are no longer the newest."""
        self.narration.begin(
            "The next day", "New messages to the same games: the history of each stream grows by a run."
        )
        log = generate_log(GAMES, LATER_MESSAGES, seed=SEED, begin=self._first_time() + _NEXT_DAY)
        self._write("next-day", log)
        self._run("next_day", "next-day")

    def truncate(self) -> None:
        """Cut what is not the newest run of its stream."""
        from runtime.spark import truncate
        from runtime.spark.summaries import count_truncated

        self.narration.begin(
            "Truncation",
            "Streams would grow for ever. Old versions are cut, here without the minimum age of 24 hours that "
            "protects from late copies; the newest run of each stream always stays.",
        )
        spark, progress = self.shown
        progress.step("Cutting")
        cut = truncate(spark, store=self.folder.store, table=TABLE, older_than=0, allow_young=True)
        report = TruncationReport(count_truncated(cut), dry_run=False)
        progress.done()
        self.document["truncation"] = report.document()
        self.screen.show(*report.parts())

    def redeliver(self) -> None:
        """Run a slice of the first day's log once more, when its versions are gone."""
        self.narration.begin(
            "A copy that comes too late",
            "Of the first day's messages nothing is left to recognise them by. They are not newer than the horizon of "
            "their stream, so they are refused, and not handled a second time.",
        )
        log = generate_log(GAMES, MESSAGES, duplicates=DUPLICATES, shuffle=True, seed=SEED)
        self._write("redelivery", islice(log, REDELIVERED))
        states_before = self._states()
        result = self._run("redelivery", "redelivery")
        too_late = result.record.counts.get(Status.TOO_LATE, 0)
        self.document["redelivery"]["same_states"] = self._states() == states_before
        if too_late != REDELIVERED or not self.document["redelivery"]["same_states"]:
            raise NotPossibleError(
                f"{too_late} of {REDELIVERED} copies were too late: it must be all of them."
            )

    def finish(self) -> None:
        """Show the leader board, and where to look next."""
        self.narration.begin(
            "The leader board", "What it all was for: the hits and misses of each game, each counted once."
        )
        scores = on_table(self.folder.store, TABLE, best_scores)
        self.document["leader_board"] = [asdict(score) for score in scores]
        self.screen.show(table_of_scores(scores))
        self.narration.end(self._to_look_at(scores))

    def _to_look_at(self, scores: list[Score]) -> list[tuple[str, str]]:
        where = f"--store {self.folder.store} --table {TABLE}"
        game = scores[0].game
        return [
            ("the batches of this demo", f"consistent batches {where}"),
            ("its streams", f"consistent streams {where} --handler ShootingRange --limit 5"),
            ("the versions of the best game", f"consistent show {where} LeaderBoard {game} --diff"),
            (
                "one version with all that is recorded",
                f"consistent show {where} ShootingRange {game} --version 44",
            ),
            ("your own handlers", "consistent run --help"),
        ]

    def _run(self, name: str, log: str) -> BatchResult:
        from runtime.spark import Batch, BatchOptions

        spark, progress = self.shown
        begun = time.monotonic()
        progress.step("Reading the log")
        options = BatchOptions(cascade=True, step=progress.step)
        batch = Batch(spark, self.app, self.folder.store, TABLE, self.folder.outcomes, options)
        result = batch.run(str(self.folder.log(log)), f"demo-{name.replace('_', '-')}")
        report = BatchReport.of(result)
        progress.done()
        self.document[name] = report.document()
        self.screen.show(
            report.table(
                f"Batch {result.record.batch_id}: outcomes after {time.monotonic() - begun:.1f} seconds"
            )
        )
        return result

    def _states(self) -> StateEvidence:
        return on_table(self.folder.store, TABLE, StateEvidence.of)

    def _write(self, name: str, rows: Iterable[dict[str, Any]]) -> int:
        from runtime.spark.log_files import write_log

        return write_log(rows, self.folder.log(name))

    def _first_time(self) -> Any:  # noqa: ANN401 - a time of the sample
        return next(generate_log(1, 1, seed=SEED))["enqueued_at"]
