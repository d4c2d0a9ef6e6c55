"""The steps of the demo, in the order they are told."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from runtime.cli.console import Screen
from runtime.cli.demo.comparison import Comparison, OutputDigest
from runtime.cli.demo.leader_board import Score, table_of_scores
from runtime.cli.demo.narration import Narration
from runtime.cli.demo.stage import GAMES, MESSAGES, TABLE, Stage
from runtime.cli.failures import NotPossibleError
from runtime.cli.reports.tables import make_table

if TYPE_CHECKING:
    from runtime.spark.rounds import BatchResult

REDELIVERED = 1_000

_OF_DUPLICATES = {"duplicate", "outputs"}


@dataclass
class Story:
    """The demo as it goes on: each step is shown, and put into the document for `--json`."""

    stage: Stage
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
        count = self.stage.write("log", self.stage.first_day())
        self.document["log"] = {"games": GAMES, "messages": MESSAGES, "deliveries": count}
        file = self.stage.folder.log("log")
        self.screen.show(f"{count:,} deliveries of {MESSAGES:,} messages to {GAMES} games, shuffled: {file}")

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
        states_before = self.stage.states()
        second = self._run("second", "log")
        outputs = OutputDigest.of(first), OutputDigest.of(second)
        compared = Comparison(outputs, (states_before, self.stage.states()))
        self.screen.show(
            "", make_table("Both runs compared", ("", "first", "second", "same"), compared.rows())
        )
        counts = self.document["second"]["counts"]
        self.document["compared"] = {
            "only_duplicates": {name for name, count in counts.items() if count} == _OF_DUPLICATES,
            "same_outputs": compared.same_outputs,
            "same_states": compared.same_states,
            "outputs": [asdict(each) for each in compared.outputs],
            "states": [asdict(each) for each in compared.states],
        }
        promises = ("only_duplicates", "same_outputs", "same_states")
        if not all(self.document["compared"][name] for name in promises):
            raise NotPossibleError(
                "The second run did not give what the first one gave: this must not happen."
            )

    def run_next_day(self) -> None:
        """Run a small log of the next day, so that the first day's versions are no longer the newest."""
        why = "New messages to the same games: the history of each stream grows by a run."
        self.narration.begin("The next day", why)
        self.stage.write("next-day", self.stage.next_day())
        self._run("next_day", "next-day")

    def truncate(self) -> None:
        """Cut what is not in the newest run of its stream."""
        self.narration.begin(
            "Truncation",
            "Streams would grow for ever. Old versions are cut, here without the minimum age of 24 hours that "
            "protects from late copies; the newest run of each stream always stays.",
        )
        report = self.stage.cut()
        self.document["truncation"] = report.document()
        self.screen.show(*report.parts())

    def redeliver(self) -> None:
        """Run a slice of the first day's log once more, when its versions are gone."""
        self.narration.begin(
            "A copy that comes too late",
            "Of the first day's messages nothing is left to recognise them by. They are not newer than the horizon of "
            "their stream, so they are refused, and not handled a second time.",
        )
        self.stage.write("redelivery", islice(self.stage.first_day(), REDELIVERED))
        states_before = self.stage.states()
        self._run("redelivery", "redelivery")
        same_states = self.stage.states() == states_before
        self.document["redelivery"]["same_states"] = same_states
        too_late = self.document["redelivery"]["counts"].get("too_late", 0)
        if too_late != REDELIVERED or not same_states:
            raise NotPossibleError(
                f"{too_late} of {REDELIVERED} copies were too late: it must be all of them."
            )

    def finish(self) -> None:
        """Show the leader board, and where to look next."""
        why = "What it all was for: the hits and misses of each game, each shot counted once."
        self.narration.begin("The leader board", why)
        scores = self.stage.best_scores()
        self.document["leader_board"] = [asdict(score) for score in scores]
        self.screen.show(table_of_scores(scores))
        self.narration.end(self._to_look_at(scores))

    def _run(self, name: str, log: str) -> BatchResult:
        begun = time.monotonic()
        batch_id = f"demo-{name.replace('_', '-')}"
        result, report = self.stage.run(log, batch_id)
        self.document[name] = report.document()
        seconds = time.monotonic() - begun
        self.screen.show(report.table(f"Batch {batch_id}: outcomes after {seconds:.1f} seconds"))
        return result

    def _to_look_at(self, scores: Sequence[Score]) -> list[tuple[str, str]]:
        where = f"--store {self.stage.folder.store} --table {TABLE}"
        game = scores[0].game
        return [
            ("The batches of this demo", f"consistent batches {where}"),
            ("Its streams", f"consistent streams {where} --handler ShootingRange --limit 5"),
            ("The versions of the best game", f"consistent show {where} LeaderBoard {game} --diff"),
            ("One with all that is recorded", f"consistent show {where} ShootingRange {game} --version 44"),
            ("Your own handlers", "consistent run --help"),
        ]
