"""How much longer a batch takes to start than Spark alone: `python -m benchmarks startup`.

A fresh process imports, starts a session and does its first work with a log of a thousand messages, until the result is
on disk: a plain PySpark program shuffles and sorts it, hands it to workers and writes what they give as Parquet; a
batch is a batch, with its store, ledger and outcomes. Both in turn, several times.

A second table has the time from Enter to the prompt: `import pyspark`, the plain program, `consistent run`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.logs import open_log

if TYPE_CHECKING:
    import pyarrow as pa

PHASES = ("imports", "session", "first result")
GOAL = 0.5
_MASTER = "local[2,4]"
_MESSAGES = 1_000
_PER_STREAM = 50
_PARTITIONS = 4

Seconds = dict[str, float]


def plain(log: str, folder: str) -> Seconds:
    """Start as a plain PySpark program does."""
    watch = _Watch()
    import pyarrow  # noqa: F401, ICN001, PLC0415 - what is measured
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    watch.end("imports")
    builder = SparkSession.builder.master(_MASTER).config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    watch.end("session")
    rows = spark.read.parquet(log).repartition(_PARTITIONS, "type").sortWithinPartitions("type", "sequence")
    rows.mapInArrow(_as_they_are, rows.schema).write.parquet(f"{folder}/out")
    watch.end("first result")
    spark.stop()
    return watch.seconds


def ours(log: str, folder: str) -> Seconds:
    """Start as `consistent run` does with a small log."""
    watch = _Watch()
    from runtime.cli.sessions import settings_for  # noqa: PLC0415 - what is measured
    from runtime.spark import build_session, run_batch  # noqa: PLC0415
    from samples.shooting_range import app  # noqa: PLC0415 - as above

    watch.end("imports")
    spark = build_session(_MASTER, settings=settings_for(0))
    watch.end("session")
    store = f"sqlite:///{folder}/store.db"
    run_batch(spark, log, app, store=store, table="games", out=f"{folder}/out", partitions=_PARTITIONS)
    watch.end("first result")
    spark.stop()
    return watch.seconds


class _Watch:
    """Says how long each phase took."""

    def __init__(self) -> None:
        self.seconds: Seconds = {}
        self._began = time.perf_counter()

    def end(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] = now - self._began
        self._began = now


def _as_they_are(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


_KINDS: dict[str, Callable[[str, str], Seconds]] = {"plain": plain, "ours": ours}


def measure(kind: str) -> Seconds:
    """Start once, in a process of its own."""
    log = open_log(_MESSAGES, _MESSAGES // _PER_STREAM).path
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "benchmarks.startup",
            "--kind",
            kind,
            "--log",
            log,
            "--folder",
            folder,
        ]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds: Seconds = json.loads(done.stdout.splitlines()[-1])
        return seconds


def measure_commands() -> Seconds:
    """Return the seconds of whole processes, from their start to their end."""
    log = open_log(_MESSAGES, _MESSAGES // _PER_STREAM).path
    with tempfile.TemporaryDirectory() as folder:
        plain_program = ["-m", "benchmarks.startup", "--kind", "plain", "--log", log, "--folder", folder]
        run = ["-m", "runtime", "run", log, "--app", "samples.shooting_range:app", "--master", _MASTER]
        run += ["--store", f"sqlite:///{folder}/store.db", "--table", "games", "--out", f"{folder}/ours"]
        commands = {
            "import pyspark": ["-c", "import pyspark"],
            "plain program": plain_program,
            "consistent run": run,
        }
        seconds = {}
        for name, arguments in commands.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
            seconds[name] = time.perf_counter() - began
        return seconds


def main(
    runs: Annotated[int, typer.Option(min=1, help="Turns.")] = 5,
    kind: Annotated[str, typer.Option(hidden=True)] = "",
    log: Annotated[str, typer.Option(hidden=True)] = "",
    folder: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Compare how long a batch and a plain PySpark program take to start."""
    if kind:
        print(json.dumps(_KINDS[kind](log, folder)))
        return
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of the programs that are measured
    turns = [(measure("plain"), measure("ours")) for _ in range(runs)]
    table = Table("phase", "plain s", "ours s", "more s (median of turns)")
    for phase in PHASES:
        table.add_row(phase, *_columns([(one[phase], other[phase]) for one, other in turns]))
    totals = [(sum(one.values()), sum(other.values())) for one, other in turns]
    table.add_row("all", *_columns(totals))
    console = Console(highlight=False)
    console.print(table)
    console.print(f"Goal: at most {GOAL} s more in all.")
    commands = [measure_commands() for _ in range(runs)]
    whole = Table("from Enter to the prompt", "s (median of turns)")
    for name in commands[0]:
        whole.add_row(name, f"{statistics.median(each[name] for each in commands):.2f}")
    console.print(whole)


def _columns(pairs: list[tuple[float, float]]) -> list[str]:
    plain_seconds, our_seconds = zip(*pairs, strict=True)
    more = statistics.median(other - one for one, other in pairs)
    return [
        f"{statistics.median(plain_seconds):.2f}",
        f"{statistics.median(our_seconds):.2f}",
        f"{more:+.2f}",
    ]


if __name__ == "__main__":
    typer.run(main)
