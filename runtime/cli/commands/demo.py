"""`consistent demo`: run the sample from message log to leader board, or write its log."""

from __future__ import annotations

import importlib
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from eventstore import Table
from runtime.batch_options import BatchOptions, TablePlace
from runtime.cli.batch_command import BatchReport
from runtime.cli.checks import on_table
from runtime.cli.console import Screen, make_table
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import AsJson, SparkOptions, only
from runtime.cli.sessions import SHORT_LIVED, working
from runtime.errors import UsageError
from runtime.options import flag, option
from runtime.versions.readable import decode
from runtime.versions.stream import summaries

if TYPE_CHECKING:
    from runtime.cli.sessions import ShownSession
    from runtime.spark.batch import BatchResult

SAMPLE = "samples.shooting_range"  # imported by name, because the runtime must work without the samples

FOLDER, TABLE, LOG = Path("demo-output"), "games", "log.parquet"
STATES = TablePlace(f"sqlite:///{FOLDER}/store.db", TABLE)
GAMES, MESSAGES, DUPLICATES, SEED = 500, 20_000, 0.1, 1
_MARK = ".made-by-consistent-demo"
_SETTINGS = {**SHORT_LIVED, "spark.sql.shuffle.partitions": "4"}


@dataclass(frozen=True)
class LogShape:
    """The size and order of a log of the shooting range."""

    games: int = option("With --log-only: concurrent games.", default=GAMES, min=1)
    messages: int = option("With --log-only: distinct messages.", default=MESSAGES, min=1)
    duplicates: float = option(
        "With --log-only: copies, as a share of the messages, such as 0.1.",
        default=0.0,
        metavar="SHARE",
        min=0.0,
    )
    shuffle: bool = flag("With --log-only: shuffle the deliveries.")
    seed: int = option("With --log-only: the same seed gives the same log.", default=SEED, metavar="S")


def demo(
    *,
    log_only: Path | None = option(
        "Only write a message log to this file, JSON lines for .jsonl, otherwise Parquet.", metavar="LOG"
    ),
    log: LogShape,
    spark: Annotated[SparkOptions, only("master")],
    as_json: AsJson = False,
) -> None:
    r"""Run the ShootingRange sample from message log to leader board, then deliver everything again.

        consistent demo

    Writes a log, a store and outcomes to ./demo-output, which is recreated at each start. Takes about half a
    minute, and fails if any result is wrong.

        consistent demo --log-only log.parquet --games 500 --messages 20000 \
            --duplicates 0.1 --shuffle

    Writes a log for other commands, without Spark. Rows are held in memory, about 1 KB each. Never overwrites a file.
    """
    begun, screen, log_file = time.monotonic(), Screen(as_json), FOLDER / "spark.log"
    if log_only is not None:
        _write_log_only(log_only, log, screen)
        return
    if log != LogShape():
        raise UsageError("--games, --messages, --duplicates, --shuffle and --seed need --log-only LOG.")
    make_folder(FOLDER)
    stopped = "Stopped. The next demo starts from scratch."
    session = working(spark.place, log_file, when_stopped=stopped, keep_steps=False, settings=_SETTINGS)
    with session as shown:
        story = _Story(shown, screen)
        story.tell()
        seconds = round(time.monotonic() - begun, 1)
        places = {"folder": str(FOLDER), "store": STATES.store, "table": TABLE}
        said = f"\nDone in {seconds} seconds. Spark's own output is in {log_file}."
        screen.put({**places, "seconds": seconds, **story.document}, said)


def make_folder(path: Path) -> None:
    """Recreate the folder of the demo. Raises `NotPossibleError` if the folder exists and no demo created it."""
    if path.is_symlink() or (path.exists() and not (path / _MARK).is_file()):
        raise NotPossibleError(f"{path} exists and was not created by the demo: move it away.")
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    (path / _MARK).write_text("The next `consistent demo` removes this folder.\n", encoding="utf-8")


@dataclass
class _Story:
    """The steps of the demo. Each step prints its result, and adds it to the document for `--json`."""

    shown: ShownSession
    screen: Screen
    document: dict[str, Any] = field(default_factory=dict)
    steps: int = 0

    def tell(self) -> None:
        """Run all steps. Raises `NotPossibleError` if the second run differs from the first."""
        self.begin("A message log", "As a queue may deliver it: late, duplicated and out of order.")
        count = _write(LogShape(GAMES, MESSAGES, DUPLICATES, shuffle=True), FOLDER / LOG)
        self.document["log"] = {"games": GAMES, "messages": MESSAGES, "deliveries": count}
        of = f"{MESSAGES:,} messages to {GAMES} games"
        self.screen.show(f"{count:,} deliveries of {of}, shuffled: {FOLDER / LOG}")
        self.begin(
            "The batch",
            "Each new message is handled on the newest state and adds a version. LeaderBoard handles the outputs of "
            "ShootingRange, Hit and Missed, in the next round.",
        )
        first = self.run("first")
        self.begin(
            "The same log again",
            "Every delivery is now a duplicate. It is replayed on the version before its own, with the same outputs "
            "and ids. Nothing is stored.",
        )
        self.compare(first, self.run("second"))
        self.begin("The leader board", "The hits and misses of each game. Each shot counts once.")
        self.show_best()

    def begin(self, title: str, why: str) -> None:
        self.steps += 1
        self.screen.show(Text.assemble("\n", (f"{self.steps}. {title}", "bold cyan")), Text(why, "dim"))

    def run(self, name: str) -> Mapping[str, Any]:
        """Run batch `demo-NAME` over the log, and show its outcomes. Return the digests of outputs and states."""
        from runtime.spark import Batch

        begun, batch_id = time.monotonic(), f"demo-{name}"
        spark, progress = self.shown
        progress.step("Reading the log")
        app, options = importlib.import_module(SAMPLE).app, BatchOptions(cascade=True, step=progress.step)
        batch = Batch(spark, app, STATES.store, TABLE, f"{FOLDER}/outcomes", options)
        result = batch.run(str(FOLDER / LOG), batch_id)
        report = BatchReport.of(result)
        progress.done()
        self.document[name] = report.document()
        seconds = time.monotonic() - begun
        self.screen.show(report.table(f"Batch {batch_id}: outcomes after {seconds:.1f} seconds"))
        return {"outputs": _digest_of_outputs(result), "states": on_table(STATES, _digest_of_states)}

    def compare(self, first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
        """Show both runs' digests. Raises `NotPossibleError` if they differ, or if the second run adds versions."""
        counts = {name for name, count in self.document["second"]["counts"].items() if count}
        promises = {"only_duplicates": counts == {"duplicate", "outputs"}}
        promises |= {f"same_{name}": first[name] == second[name] for name in first}
        pairs = {name: (first[name], second[name]) for name in first}
        self.document["compared"] = {**promises, **pairs}
        if not all(promises.values()):
            raise NotPossibleError("The second run differs from the first one. Please report this as a bug.")
        rows = [
            (name if name != "sha256" else f"SHA-256 of all {of}", *(str(each[name])[:16] for each in pair))
            for of, pair in pairs.items()
            for name in pair[0]
        ]
        self.screen.show("", make_table("Both runs are the same", ("", "first", "second"), rows))

    def show_best(self) -> None:
        """Show the leader board, and commands to try next."""
        scores = on_table(STATES, _best_scores)
        self.document["leader_board"] = scores
        where, game = f"--store {STATES.store} --table {TABLE}", scores[0]["game"]
        self.screen.show(
            make_table(f"The {len(scores)} games with the most hits", ("game", "hits", "misses"), scores),
            Text("\nNext steps", "bold cyan"),
            f"  consistent batches {where}",
            f"  consistent show ShootingRange {where} --limit 5",
            f"  consistent show {where} LeaderBoard {game} --diff",
            f"  consistent show {where} ShootingRange {game} --version 2",
            "  consistent run --help",
        )


def _digest_of_outputs(result: BatchResult) -> dict[str, Any]:
    from runtime.spark import outputs

    columns = ("message_id", "type", "body", "sequence", "enqueued_at", "headers")
    rows = outputs(result.outcomes).select(*columns).toArrow().to_pylist()
    lines = sorted(json.dumps(row, default=str, ensure_ascii=False, sort_keys=True) for row in rows)
    return {"count": len(lines), "sha256": sha256("\n".join(lines).encode()).hexdigest()}


async def _digest_of_states(table: Table) -> dict[str, Any]:
    digest, streams, versions = sha256(), 0, 0
    async for summary in summaries(table):
        digest.update(repr((summary.key, summary.runs, summary.head)).encode())
        streams += 1
        versions += summary.head.versions
    return {"streams": streams, "versions": versions, "sha256": digest.hexdigest()}


async def _best_scores(table: Table) -> list[dict[str, Any]]:
    scores = []
    async for summary in summaries(table, "LeaderBoard"):
        state = decode(summary.head.state or b"{}")
        hits, misses = state["number_of_hits"], state["number_of_misses"]
        scores.append({"game": summary.business_id, "hits": hits, "misses": misses})
    return sorted(scores, key=lambda score: (-score["hits"], score["misses"], score["game"]))[:5]


def _write(shape: LogShape, path: Path) -> int:
    """Write a log of the sample, and return the number of deliveries."""
    from runtime.spark.logs.read import write_log

    return write_log(importlib.import_module(f"{SAMPLE}.log").generate(**asdict(shape)), path)


def _write_log_only(path: Path, shape: LogShape, screen: Screen) -> None:
    """Write a log, and show the command that runs it. Raises `NotPossibleError` if the file exists."""
    if path.exists():
        raise NotPossibleError(f"{path} exists: remove it, or use another --log-only.")
    written = _write(shape, path)
    counts = {"deliveries": written, "messages": shape.messages, "duplicates": written - shape.messages}
    screen.put(
        {"out": str(path), **counts, "games": shape.games},
        f"Wrote {written:,} deliveries of {shape.messages:,} messages in {shape.games:,} games to {path}.",
        f"Run it: consistent run --app samples.shooting_range:app --messages {path} --cascade "
        f"--store sqlite:///store.db --table games --out outcomes",
    )
