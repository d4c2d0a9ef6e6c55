"""Where the processor time of a batch goes: `python -m benchmarks stages` measures it stage by stage.

In the worker each stage of a fold is run by itself, with what the stage before gave, on an SQLite file. In the JVM the
plan of a batch is run up to one more stage each time; a stage takes what its run took more than the one before. Beside
them is the bare fold, which stores nothing. All is in microseconds of processor time for each message: the least of
several turns in the worker, the median in the JVM.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table as Shown

from benchmarks.contenders import bare_fold
from benchmarks.games import by_game, routed_batches
from benchmarks.logs import Log, open_log
from benchmarks.shooting import HANDLER, TABLE, decode, handle, initial_state
from eventstore import connect, drive
from runtime.algorithms.state_based.algorithm import StateBased
from runtime.algorithms.state_based.decide import Decider
from runtime.clock import system_clock
from runtime.ledger.batch import NOTHING, BatchContext, OpenBatches
from runtime.messages.outcome import Outcomes
from runtime.messages.parsing import prepare_all
from runtime.retries import RetryPolicy
from runtime.spark import build_session
from runtime.spark.logs import read
from runtime.spark.logs.normalise import normalise, route
from runtime.spark.worker.job import FoldJob, groups
from runtime.spark.worker.outcomes import to_arrow
from samples.shooting_range import app

PER_STREAM = 50
MICRO = 1e6
_BATCH = BatchContext("stages", OpenBatches())
_WARM = 3
_COUNT = "rows long"

Stages = dict[str, float]


class Watch:
    """Adds up the processor time of this thread that stages take."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add what is done inside to a stage."""
        begun = time.thread_time()
        try:
            yield
        finally:
            self.seconds[name] += time.thread_time() - begun


def worker_stages(batches: Sequence[pa.RecordBatch], folder: Path) -> Stages:
    """Run a fold stage by stage, and return the seconds of each."""
    watch = Watch()
    table = drive(connect(f"sqlite:///{folder}/stages.db").table(TABLE))
    algorithm = StateBased(table, HANDLER, system_clock, _BATCH, RetryPolicy())
    done: list[Outcomes] = []
    with watch.stage("Arrow in: cut into groups"):
        found = list(groups(batches))
    for group in found:
        stream = group.business_id or ""
        with watch.stage("parse, fingerprint, ids, business id"):
            deliveries = prepare_all(HANDLER, stream, group.envelopes)
        with watch.stage("load and store"):
            history = drive(algorithm.load(stream, deliveries))
        decider = Decider(HANDLER, system_clock, _BATCH, stream)
        with watch.stage("handlers, and what is around the call"):
            sealed = algorithm.invoke(decider, history, deliveries, NOTHING)
        with watch.stage("load and store"):
            drive(algorithm.store(history, sealed))
        done.append(sealed.outcomes)
    with watch.stage("Arrow out"):
        to_arrow(done)
    return dict(watch.seconds)


def whole_fold(batches: Sequence[pa.RecordBatch], folder: Path) -> Stages:
    """Run the same as a worker does, and as the bare fold does; return the seconds of each."""
    watch = Watch()
    job = FoldJob(app, f"sqlite:///{folder}/whole.db", TABLE, _BATCH)
    with watch.stage("all of it, as a worker runs it"):
        for _ in job.fold(batches):
            pass
    with watch.stage("the bare fold"):
        for _ in bare_fold.fold(batches):
            pass
    return dict(watch.seconds)


def handlers_alone(batches: Sequence[pa.RecordBatch]) -> Stages:
    """Call the handlers, with their messages decoded before, and nothing else; return the seconds."""
    columns = [
        (name, [value for batch in batches for value in batch.column(name).to_pylist()])
        for name in ("business_id", "message_id", "type", "body")
    ]
    games, ids, types, bodies = (values for _, values in columns)
    messages = [decode(type_, body) for type_, body in zip(types, bodies, strict=True)]
    watch = Watch()
    state, current = initial_state(), ""
    with watch.stage("of that the handlers"):
        for game, message_id, type_, message in zip(games, ids, types, messages, strict=True):
            if game != current:
                state, current = initial_state(), game
            state, _ = handle(state, type_, message, message_id, game)
    return dict(watch.seconds)


def measure_worker(streams: int, turns: int) -> Stages:
    """Return the microseconds of each stage for a message: the least of some turns."""
    batches = list(routed_batches(by_game(range(streams), range(PER_STREAM))))
    least: Stages = {}
    for _ in range(turns):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            found = {
                **worker_stages(batches, folder),
                **handlers_alone(batches),
                **whole_fold(batches, folder),
            }
        for stage, seconds in found.items():
            least[stage] = min(least.get(stage, seconds), seconds)
    return {stage: seconds / streams / PER_STREAM * MICRO for stage, seconds in least.items()}


def plans(spark: SparkSession, log: Log) -> dict[str, DataFrame]:
    """Return the plan of a batch up to each of its stages in the JVM, and that of the bare fold."""
    partitions = 2 * spark.sparkContext.defaultParallelism
    messages = normalise(read.open_log(spark, log.path).rows)
    routed = route(messages, app, partitions)
    return {
        "read": spark.read.parquet(log.path),
        "read and check": messages,
        "key, shuffle and sort": routed,
        "hand over to a worker and back": routed.mapInArrow(_count, _COUNT),
        "the bare fold: read, shuffle, sort, hand over": bare_fold.ordered(
            spark, log.path, partitions
        ).mapInArrow(_count, _COUNT),
    }


def measure_jvm(messages: int, turns: int) -> Stages:
    """Return the microseconds of each stage for a message, once the JVM is warm: the median of some turns."""
    with tempfile.TemporaryDirectory() as name:
        spark = build_session("local[2]", log_file=Path(name) / "spark.log")
        try:
            all_plans = plans(spark, open_log(messages, messages // PER_STREAM))
            found: dict[str, list[float]] = {stage: [] for stage in all_plans}
            for turn in range(_WARM + turns):
                for stage, plan in all_plans.items():
                    seconds = _taken(spark, plan)
                    if turn >= _WARM:
                        found[stage].append(seconds / messages * MICRO)
        finally:
            spark.stop()
    return {stage: statistics.median(values) for stage, values in found.items()}


def _count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})


def _taken(spark: SparkSession, plan: DataFrame) -> float:
    """Run a plan whose rows are thrown away, and return the seconds of processor time that the JVM takes for it."""
    before = _jvm_seconds(spark)
    plan.write.format("noop").mode("overwrite").save()
    return _jvm_seconds(spark) - before


def _jvm_seconds(spark: SparkSession) -> float:
    jvm: Any = spark._jvm  # noqa: SLF001 - there is no public way to the JVM
    duration = jvm.java.lang.ProcessHandle.current().info().totalCpuDuration().get()
    return float(duration.toNanos()) / 1e9


def _table(title: str, rows: Iterable[tuple[str, float]]) -> Shown:
    table = Shown(title, "us a message")
    for stage, value in rows:
        table.add_row(stage, f"{value:.1f}")
    return table


def main(
    messages: Annotated[int, typer.Option(min=PER_STREAM, help="Messages of the log for the JVM.")] = 300_000,
    streams: Annotated[int, typer.Option(min=1, help="Streams of 50 messages for the worker.")] = 200,
    turns: Annotated[int, typer.Option(min=1, help="Turns of each.")] = 6,
) -> None:
    """Print the processor time of each stage of a batch, and that of a bare fold."""
    console = Console(highlight=False)
    console.print(_table("worker", measure_worker(streams, 5 * turns).items()))
    found = list(measure_jvm(messages, turns).items())
    *staged, bare = found
    more = [0.0, *(value for _, value in staged)]
    each = [(stage, value - before) for (stage, value), before in zip(staged, more, strict=False)]
    console.print(_table("JVM", [*each, ("all of it", staged[-1][1]), bare]))


if __name__ == "__main__":
    typer.run(main)
