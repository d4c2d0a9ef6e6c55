"""How much longer a batch takes to start than Spark alone: `python -m benchmarks.startup`.

A fresh process imports, starts a session and runs a first `mapInArrow` over an empty log: once as a plain PySpark
program would, once with this project's session, app and fold. Both in turn, several times.
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

if TYPE_CHECKING:
    import pyarrow as pa

PHASES = ("imports", "session", "first job")
GOAL = 0.5
_MASTER = "local[2,4]"
_READ = "id long"

Seconds = dict[str, float]


def plain(folder: str) -> Seconds:
    """Start as a plain PySpark program does."""
    watch = _Watch()
    import pyarrow  # noqa: F401, ICN001, PLC0415 - what is measured
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    watch.end("imports")
    builder = SparkSession.builder.master(_MASTER).config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    watch.end("session")
    spark.createDataFrame([], _READ).mapInArrow(_nothing, _READ).write.parquet(f"{folder}/out")
    watch.end("first job")
    spark.stop()
    return watch.seconds


def ours(folder: str) -> Seconds:
    """Start as a batch does, up to the fold of no messages."""
    watch = _Watch()
    from runtime.batches.context import BatchContext  # noqa: PLC0415 - what is measured
    from runtime.spark import build_session  # noqa: PLC0415
    from runtime.spark.workers.connection import open_table  # noqa: PLC0415
    from runtime.spark.workers.job import FoldJob  # noqa: PLC0415
    from runtime.spark.workers.parts import PART, PartJob  # noqa: PLC0415
    from samples.shooting_range import app  # noqa: PLC0415

    watch.end("imports")
    spark = build_session(_MASTER)
    watch.end("session")
    store = f"sqlite:///{folder}/store.db"
    open_table(store, "games")
    job = FoldJob(app, store, "games", BatchContext("start"))
    part = PartJob(job.fold, folder, tuple(app.message_types))
    spark.createDataFrame([], _READ).mapInArrow(part.run, PART).collect()
    watch.end("first job")
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


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


_KINDS: dict[str, Callable[[str], Seconds]] = {"plain": plain, "ours": ours}


def measure(kind: str) -> Seconds:
    """Start once, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.startup", "--kind", kind, "--folder", folder]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        seconds: Seconds = json.loads(done.stdout.splitlines()[-1])
        return seconds


def main(
    runs: Annotated[int, typer.Option(min=1, help="Turns.")] = 5,
    kind: Annotated[str, typer.Option(hidden=True)] = "",
    folder: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Compare how long a batch and a plain PySpark program take to start."""
    if kind:
        print(json.dumps(_KINDS[kind](folder)))
        return
    turns = [(measure("plain"), measure("ours")) for _ in range(runs)]
    table = Table("phase", "plain s", "ours s", "more s (median of turns)")
    for phase in PHASES:
        table.add_row(phase, *_columns([(one[phase], other[phase]) for one, other in turns]))
    totals = [(sum(one.values()), sum(other.values())) for one, other in turns]
    table.add_row("all", *_columns(totals))
    console = Console(highlight=False)
    console.print(table)
    console.print(f"Goal: at most {GOAL} s more in all.")


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
