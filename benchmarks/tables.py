"""How fast versions are read as tables: `python -m benchmarks.tables` makes a store and reads all of it.

Streams of the ShootingRange sample with 50 versions each are read without Spark and with it, all columns and those of
the index alone. Time is that of the processor: of this process, and on Spark of the JVM and its workers together.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.guard import PER_STREAM, game_of
from eventstore import connect, drive
from runtime.algorithms.state_based.process import StateBased
from runtime.batches.context import BatchContext
from runtime.clock import system_clock
from runtime.messages.envelope import Envelope
from runtime.messages.parsing import prepare
from runtime.retries import RetryPolicy
from runtime.spark import build_session, register_data_sources
from runtime.tables.reading import scan
from runtime.tables.requests import Kind, Request
from runtime.tables.wanted import Wanted
from samples.shooting_range import app
from samples.shooting_range.log import generate

TABLE = "games"
INDEX = ("handler", "version")
_TICKS = os.sysconf("SC_CLK_TCK")


def make(store: str, versions: int) -> None:
    """Fill a store."""
    handler = app.handlers["ShootingRange"]
    table = drive(connect(store).table(TABLE))
    algorithm = StateBased(table, handler, system_clock, BatchContext("b"), RetryPolicy().beside(table))
    log = generate(max(1, versions // PER_STREAM), versions)
    by_game = sorted(log, key=lambda row: (game_of(row), row["sequence"]))
    for game, rows in groupby(by_game, key=game_of):
        envelopes = (Envelope(row["message_id"], row["type"], row["body"]) for row in rows)
        drive(algorithm.process(game, [prepare(handler, game, each) for each in envelopes]))


def processor_time() -> float:
    """Return the seconds of the processor that this process and all below it have taken."""
    below, ticks = {os.getpid()}, 0
    for stat in sorted(Path("/proc").glob("[0-9]*/stat"), key=lambda path: int(path.parent.name)):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) in below or int(stat.parent.name) in below:
            below.add(int(stat.parent.name))
            ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS


def measure(name: str, versions: int, read: Callable[[], object]) -> None:
    """Read once to warm up, and once more to print how many versions a second of the processor takes."""
    read()
    busy, begun = processor_time(), time.perf_counter()
    read()
    busy, took = processor_time() - busy, time.perf_counter() - begun
    print(f"{name:<30} {versions / busy:>12,.0f} a CPU second {took:>8.1f} s")


def main(versions: Annotated[int, typer.Option(help="How many versions to read.")] = 200_000) -> None:
    """Measure how fast versions are read as tables."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/store.db"
        make(store, versions)

        def count(columns: tuple[str, ...] | None) -> int:
            request = Request(Kind.VERSIONS, Wanted(columns=columns))
            return sum(batch.num_rows for batch in scan(store, TABLE, request))

        made = count(INDEX)
        measure("all columns", made, lambda: count(None))
        measure("columns of the index", made, lambda: count(INDEX))
        spark = build_session("local[2]", log_file=Path(folder) / "spark.log")
        register_data_sources(spark)
        found = spark.read.format("consistent-versions").options(store=store, table=TABLE, numPartitions="8")
        measure(
            "all columns, on Spark",
            made,
            lambda: found.load().write.format("noop").mode("overwrite").save(),
        )
        spark.stop()


if __name__ == "__main__":
    typer.run(main)
