"""`consistent demo` and `consistent sample`: the sample from message log to leader board, and its log alone."""

from __future__ import annotations

import importlib
import json
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from eventstore import Table
from handlers import App
from runtime.cli.batch_command import BatchReport
from runtime.cli.checks import on_table
from runtime.cli.commands.truncate import TruncationReport
from runtime.cli.console import Screen, make_table
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import DEFAULT_MASTER, AsJson, Master
from runtime.cli.sessions import SHORT_LIVED, check_master, working
from runtime.versions.readable import decode
from runtime.versions.stream import summaries

if TYPE_CHECKING:
    from runtime.cli.sessions import ShownSession
    from runtime.spark.rounds import BatchResult


# The folder of the demo: made anew at each start, and removed only if an earlier demo made it.

NAME = "demo-output"

_MARK = ".made-by-consistent-demo"


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """Where the demo keeps its logs, its store and its outcomes."""

    path: Path

    @classmethod
    def make(cls, path: Path = Path(NAME)) -> DemoFolder:
        """Make the folder anew. Raises `NotPossibleError` when there is one that no demo made."""
        if path.exists() or path.is_symlink():
            if path.is_symlink() or not (path / _MARK).is_file():
                raise NotPossibleError(f"{path} is there and was not made by the demo: move it away first.")
            shutil.rmtree(path)
        path.mkdir(parents=True)
        (path / _MARK).write_text("The next `consistent demo` removes this folder.\n", encoding="utf-8")
        return cls(path)

    @property
    def store(self) -> str:
        """The url of the store."""
        return f"sqlite:///{self.path}/store.db"

    @property
    def outcomes(self) -> str:
        """Where batches write their outcomes."""
        return f"{self.path}/outcomes"

    @property
    def spark_log(self) -> Path:
        """Where Spark prints."""
        return self.path / "spark.log"

    def log(self, name: str) -> Path:
        """Return where a message log is."""
        return self.path / f"{name}.parquet"


# How the demo is told: numbered steps, each with the reason for it.


class Narration:
    """Counts the steps."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._number = 0

    def begin(self, title: str, why: str) -> None:
        """Begin a step."""
        self._number += 1
        self._screen.show(Text.assemble("\n", (f"{self._number}. {title}", "bold cyan")), Text(why, "dim"))

    def end(self, to_look_at: Sequence[tuple[str, str]]) -> None:
        """Say what to look at next."""
        self._screen.show(Text("\nTo look at next", "bold cyan"))
        for what, command in to_look_at:
            self._screen.show(Text(f"{what}:", "dim"), f"  {command}")


# Comparison of two runs: digests of all outputs, and of all states.

_DIGITS_SHOWN = 16

OUTPUT_COLUMNS = ("message_id", "type", "body", "sequence", "enqueued_at", "headers")


@dataclass(frozen=True, slots=True)
class OutputDigest:
    """How many outputs a batch published, and the SHA-256 of their sorted rows: all columns of all of them."""

    count: int
    sha256: str

    @classmethod
    def of(cls, result: BatchResult) -> OutputDigest:
        """Read the outputs of a batch that is small enough to be held in memory."""
        from runtime.spark import outputs

        lines = sorted(
            _line(row) for row in outputs(result.outcomes).select(*OUTPUT_COLUMNS).toArrow().to_pylist()
        )
        return cls(len(lines), sha256("\n".join(lines).encode()).hexdigest())


@dataclass(frozen=True, slots=True)
class StateDigest:
    """How many streams and state versions a table has, and the SHA-256 of all heads: states, versions and times."""

    streams: int
    versions: int
    sha256: str

    @classmethod
    async def of(cls, table: Table) -> StateDigest:
        """Read the header of each stream, in the order of their keys. One request for each 1,000."""
        digest, streams, versions = sha256(), 0, 0
        async for summary in summaries(table):
            digest.update(repr((summary.key, summary.runs, summary.head)).encode())
            streams += 1
            versions += summary.head.versions
        return cls(streams, versions, digest.hexdigest())


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the first run and the second one gave."""

    outputs: tuple[OutputDigest, OutputDigest]
    states: tuple[StateDigest, StateDigest]

    @property
    def same_outputs(self) -> bool:
        """Whether the outputs are identical, byte for byte."""
        return self.outputs[0] == self.outputs[1]

    @property
    def same_states(self) -> bool:
        """Whether no stream has changed."""
        return self.states[0] == self.states[1]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Give what is compared: its name, the first run's, the second run's, and whether they are the same."""
        for title, first, second in (
            ("outputs", *(each.count for each in self.outputs)),
            ("SHA-256 of all outputs", *(_short(each.sha256) for each in self.outputs)),
            ("streams", *(each.streams for each in self.states)),
            ("state versions", *(each.versions for each in self.states)),
            ("SHA-256 of all states", *(_short(each.sha256) for each in self.states)),
        ):
            yield title, first, second, "yes" if first == second else "NO"


def _short(digest: str) -> str:
    return f"{digest[:_DIGITS_SHOWN]}..."


def _line(row: dict[str, object]) -> str:
    return json.dumps(row, default=str, ensure_ascii=False, sort_keys=True)


# The leader board of the demo, read from the heads of its streams.

HANDLER = "LeaderBoard"
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Score:
    """The hits and misses of one game."""

    game: str
    hits: int
    misses: int


async def best_scores(table: Table) -> list[Score]:
    """Return the games with the most hits. One request for each 1,000 games."""
    scores = []
    async for summary in summaries(table, HANDLER):
        state = decode(summary.head.state or b"{}")
        scores.append(Score(summary.business_id, state["number_of_hits"], state["number_of_misses"]))
    return sorted(scores, key=lambda score: (-score.hits, score.misses, score.game))[:SHOWN]


def table_of_scores(scores: Sequence[Score]) -> RenderableType:
    """Return a row for each game."""
    rows = [(place, score.game, score.hits, score.misses) for place, score in enumerate(scores, 1)]
    return make_table(f"The {len(rows)} games with the most hits", ("", "game", "hits", "misses"), rows)


# The log of the sample.

SHOOTING_RANGE_LOG = "samples.shooting_range.log"
"""By name: the runtime works without the samples."""


def generate_log(games: int, messages: int, **options: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - of the sample
    """Give the rows of a shooting range log."""
    rows: Iterator[dict[str, Any]] = importlib.import_module(SHOOTING_RANGE_LOG).generate(
        games, messages, **options
    )
    return rows


# What the demo works with: it writes logs, runs batches over them, cuts streams, and looks at what is stored.

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
        from runtime.spark.logs.read import write_log

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


# The steps of the demo, in the order they are told.

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


SAMPLE = "samples.shooting_range"
"""By name: the runtime works without the samples."""

_SETTINGS = {**SHORT_LIVED, "spark.sql.shuffle.partitions": "4"}


def demo(*, master: Master = DEFAULT_MASTER, as_json: AsJson = False) -> None:
    """Run the ShootingRange sample from message log to leader board, and then deliver everything again.

        consistent demo

    It writes logs, an embedded store and outcomes to ./demo-output, which is removed and made anew at each start, and
    takes about half a minute. It ends with an error if anything does not come out as it must.
    """
    check_master(master)
    begun = time.monotonic()
    app = importlib.import_module(SAMPLE).app
    folder = DemoFolder.make()
    screen = Screen(as_json)
    session = working(
        master,
        folder.spark_log,
        when_stopped="Stopped. The next demo begins anew.",
        keep_steps=False,
        settings=_SETTINGS,
    )
    with session as shown:
        story = Story(Stage(app, folder, shown), Narration(screen), screen)
        story.tell()
        seconds = round(time.monotonic() - begun, 1)
        screen.give(
            {
                "folder": str(folder.path),
                "store": folder.store,
                "table": TABLE,
                "seconds": seconds,
                **story.document,
            }
        )
        screen.show(f"\nDone in {seconds} seconds. Spark's own output is in {folder.spark_log}.")


# `consistent sample`: message logs to try things with.

Games = Annotated[int, typer.Option("--games", metavar="N", min=1, help="How many games are played at once.")]
Messages = Annotated[int, typer.Option("--messages", metavar="N", min=1, help="How many different messages.")]
Duplicates = Annotated[
    float,
    typer.Option(
        "--duplicates", metavar="SHARE", min=0.0, help="Add copies of so many of them: 0.1 adds a tenth."
    ),
]
Shuffle = Annotated[bool, typer.Option("--shuffle", help="Put the deliveries in no order at all.")]
Seed = Annotated[int, typer.Option("--seed", metavar="S", help="The same seed gives the same log.")]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="LOG",
        show_default=False,
        help="The file to write: JSON lines if .jsonl, else Parquet.",
    ),
]


def shooting_range(
    *,
    out: Out,
    games: Games = 500,
    messages: Messages = 20_000,
    duplicates: Duplicates = 0.0,
    shuffle: Shuffle = False,
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    r"""Write a message log of games on a shooting range, as a queue would deliver it.

        consistent sample shooting-range --games 500 --messages 20000 \
            --duplicates 0.1 --shuffle --out log.parquet

    Each game begins with StartNewRound, and then come shots, FireAt. The rows are made in memory, about 1 KB each; no
    Spark is started. A file that is there already is not replaced.
    """
    if out.exists():
        raise NotPossibleError(f"{out} is there already: remove it, or write to another --out.")
    from runtime.spark.logs.read import write_log

    rows = generate_log(games, messages, duplicates=duplicates, shuffle=shuffle, seed=seed)
    written = write_log(rows, out)
    screen = Screen(as_json)
    screen.give(
        {
            "out": str(out),
            "deliveries": written,
            "messages": messages,
            "duplicates": written - messages,
            "games": games,
        }
    )
    screen.show(
        f"Wrote {written:,} deliveries of {messages:,} messages in {games:,} games to {out}.",
        f"Run them: consistent run --app samples.shooting_range:app --messages {out} --cascade "
        f"--store sqlite:///store.db --table games --out outcomes",
    )
