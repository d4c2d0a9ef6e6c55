"""How fast versions are read as tables: `python -m benchmarks tables` makes a store and reads all of it.

Streams of the ShootingRange sample with 50 versions each are read without Spark, from the columns that cost least to
all of them, then shorter and longer streams, and then on Spark. Each read is repeated: processor time, of this process
or of the JVM and its workers together, is the least of the turns, and time by the clock the median. What Spark takes to
read no row at all is measured too, so that the rate is known without it.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from pyspark.sql import DataFrameReader, SparkSession

from benchmarks.guard import PER_STREAM, game_of
from eventstore import connect, drive
from handlers import App
from runtime.algorithms.state_based.algorithm import StateBased
from runtime.clock import system_clock
from runtime.ledger.batch import BatchContext
from runtime.messages.envelope import Envelope
from runtime.messages.parsing import prepare
from runtime.retries import RetryPolicy
from runtime.spark import build_session, register_data_sources
from runtime.tables.reader import Request, TableKind, scan
from runtime.tables.streams import StreamQuery
from samples.shooting_range import app
from samples.shooting_range.log import generate

TABLE = "games"
HANDLER = "ShootingRange"
INDEX = ("handler", "version")
CORES = 2
ALL, NO_ROW = "Spark, all columns", "Spark, no row"
_READS: dict[str, tuple[tuple[str, ...] | None, App | None]] = {
    "columns of the index": (INDEX, None),
    "these and `message_id`": ((*INDEX, "message_id"), None),
    "these and `type`": ((*INDEX, "message_id", "type"), None),
    "all columns": (None, None),
    "all columns, states as structs": (None, app),
}
_OTHERS = (5, 5_000)
_MOST_OF_OTHERS = 100_000
_ticks = os.sysconf("SC_CLK_TCK")


class Measured(NamedTuple):
    """One way to read: how many versions it gave, in how many seconds of processor time and by the clock."""

    name: str
    versions: int
    busy: float
    took: float


def make(store: str, versions: int, per_stream: int = PER_STREAM) -> None:
    """Fill a store."""
    handler = app.handlers[HANDLER]
    table = drive(connect(store).table(TABLE))
    algorithm = StateBased(table, handler, system_clock, BatchContext("b"), RetryPolicy().beside(table))
    log = generate(max(1, versions // per_stream), versions)
    by_game = sorted(log, key=lambda row: (game_of(row), row["sequence"]))
    for game, rows in groupby(by_game, key=game_of):
        envelopes = (Envelope(row["message_id"], row["type"], row["body"]) for row in rows)
        drive(algorithm.process(game, [prepare(handler, game, each) for each in envelopes]))


def without_spark(store: str, turns: int) -> Iterator[Measured]:
    """Read columns that cost more and more to decode, on one core."""
    for name, (columns, of_model) in _READS.items():
        yield scanned(
            name,
            store,
            Request(TableKind.VERSIONS, StreamQuery(HANDLER, columns=columns), app=of_model),
            turns,
        )


def of_other_streams(folder: Path, versions: int, turns: int) -> Iterator[Measured]:
    """Read all columns of shorter streams and of longer ones: each stream has a price, and each version."""
    for per_stream in _OTHERS:
        store = f"sqlite:///{folder}/{per_stream}.db"
        make(store, versions, per_stream)
        name = f"all columns, {per_stream:,} versions in each stream"
        yield scanned(name, store, Request(TableKind.VERSIONS), turns)


def scanned(name: str, store: str, request: Request, turns: int) -> Measured:
    """Read in this process, once to warm up and then a few times."""

    def read() -> int:
        return sum(batch.num_rows for batch in scan(store, TABLE, request))

    read()
    return measured(name, read, turns)


def on_spark(store: str, made: int, log_file: Path, turns: int) -> Iterator[Measured]:
    """Read all versions for the first time in a session, then again, and none of them."""
    spark = build_session(f"local[{CORES}]", log_file=log_file)
    try:
        register_data_sources(spark)
        yield measured("Spark, all columns, first read", lambda: _all_of(_source(spark, store), made), 1)
        yield measured(ALL, lambda: _all_of(_source(spark, store), made), turns)
        index = _source(spark, store).option("columns", ",".join(INDEX))
        yield measured("Spark, columns of the index", lambda: _all_of(index, made), turns)
        nobody = _source(spark, store).option("handler", "Nobody")
        yield measured(NO_ROW, lambda: _all_of(nobody, 0), turns)
    finally:
        spark.stop()


def measured(name: str, read: Callable[[], int], turns: int) -> Measured:
    """Read a few times."""
    busy, took = [], []
    for _ in range(turns):
        before, begun = processor_time(), time.perf_counter()
        versions = read()
        took.append(time.perf_counter() - begun)
        busy.append(processor_time() - before)
    return Measured(name, versions, min(busy), statistics.median(took))


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
    return ticks / _ticks


def markdown(found: Sequence[Measured]) -> str:
    """Return what was measured as a table, with the rate on Spark less what reading no row takes."""
    made = found[0].versions
    lines = [
        f"{made:,} versions, {PER_STREAM} in each stream, from an SQLite file; Spark on {CORES} cores:",
        "",
        "| read | µs of processor time for a version | seconds | versions a second |",
        "|---|---:|---:|---:|",
    ]
    for name, versions, busy, took in found:
        micro, rate = (f"{busy / versions * 1e6:.2f}", f"{versions / took:,.0f}") if versions else ("", "")
        lines.append(f"| {name} | {micro} | {took:.2f} | {rate} |")
    seconds = {each.name: each.took for each in found}
    if NO_ROW in seconds:
        net = seconds[ALL] - seconds[NO_ROW]
        lines.append(f"| {ALL}, less what no row takes | | {net:.2f} | {made / net:,.0f} |")
    return "\n".join([*lines, ""])


def main(
    versions: Annotated[int, typer.Option(help="How many versions to read.")] = 1_000_000,
    turns: Annotated[int, typer.Option(help="How often each read is measured.")] = 3,
) -> None:
    """Measure how fast versions are read as tables."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/store.db"
        make(store, versions)
        found = list(without_spark(store, turns))
        found += of_other_streams(Path(folder), min(versions, _MOST_OF_OTHERS), turns)
        found += on_spark(store, found[0].versions, Path(folder) / "spark.log", turns)
    print(markdown(found))


def _source(spark: SparkSession, store: str) -> DataFrameReader:
    return spark.read.format("consistent-versions").options(store=store, table=TABLE)


def _all_of(source: DataFrameReader, count: int) -> int:
    source.load().write.format("noop").mode("overwrite").save()
    return count


if __name__ == "__main__":
    typer.run(main)
