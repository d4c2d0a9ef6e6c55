"""What a stream costs beside a plain one: `python -m benchmarks streams`.

Files of messages are taken one by one, each as a micro-batch: by a plain `foreachBatch` that appends Parquet, and by
`run_stream`. Printed are how long micro-batches take and, of ours, whether that, the requests of the driver to the
store, its memory and Java's heap grow with the epochs: the first fifth of them is set beside the last. With `--whole`
the same messages are run as one batch, too. What a session does first is left out: a tenth of the micro-batches. The
time of the processor is that of the driver, Java and the workers together: it tells more than the clock where others
work, too.
"""

from __future__ import annotations

import itertools
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.tables import processor_time
from eventstore import InterceptedTable
from runtime.batch_options import TablePlace
from runtime.spark import build_session, run_batch
from runtime.spark.streaming import Stream, open_source
from runtime.spark.worker.connection import open_table
from samples.shooting_range import app
from samples.shooting_range.log import generate

TABLE = "games"
PER_GAME = 50
GOAL_SECONDS, GOAL_SHARE = 0.3, 0.8
_COLLECTED_EVERY = 200
"""After how many epochs Java is to collect its garbage: fewer would be seen in p99."""

_KILOBYTES, _BYTES = 2**10, 2**20
"""How many make a megabyte."""


@dataclass
class Metered(Stream):
    """A stream whose driver's requests to the store are counted, and its memory and Java's looked at."""

    requests: list[int] = field(default_factory=list, init=False)
    busy: list[float] = field(default_factory=list, init=False)
    megabytes: list[float] = field(default_factory=list, init=False)
    heap: list[float] = field(default_factory=list, init=False)

    def __call__(self, messages: DataFrame, epoch: int) -> None:
        """Run a micro-batch, and take note of what it asked."""
        connection = open_table(self.place.store, self.place.table)
        plain = connection.table
        connection.table = counted = InterceptedTable(plain)
        super().__call__(messages, epoch)
        connection.table = plain
        self.busy.append(processor_time())
        self.requests.append(counted.calls - counted.counts["barrier"])
        self.megabytes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KILOBYTES)
        if epoch % _COLLECTED_EVERY == 0:
            self.heap.append(_heap_bytes(messages.sparkSession) / _BYTES)


def _heap_bytes(spark: SparkSession) -> int:
    """Return how much of its heap Java uses when it has collected its garbage."""
    jvm: Any = spark._jvm  # noqa: SLF001 - there is no public way to the JVM
    jvm.java.lang.System.gc()
    return int(jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed())


def write_files(folder: Path, epochs: int, size: int, at_once: int | None = None) -> None:
    """Write a file of messages for each micro-batch, of so many games at once, or of all of them."""
    folder.mkdir()
    games = at_once or max(1, epochs * size // PER_GAME)
    waves = (generate(games, games * PER_GAME, seed=wave) for wave in itertools.count(1))
    rows = itertools.chain.from_iterable(waves)
    lines = (json.dumps(row, default=lambda time: time.isoformat()) for row in rows)
    for number in range(epochs):
        some = itertools.islice(lines, size)
        (folder / f"{number:06}.jsonl").write_text("\n".join(some))


def plain(spark: SparkSession, incoming: str, folder: Path) -> tuple[list[float], list[float]]:
    """Append what comes to Parquet; return the seconds of each micro-batch, and how busy the processor was by then."""
    busy = []

    def write(messages: DataFrame, _: int) -> None:
        messages.write.mode("append").parquet(f"{folder}/plain")
        busy.append(processor_time())

    lines = open_source(spark, incoming, "json", max_files=1)
    writer = lines.writeStream.option("checkpointLocation", f"{folder}/plain-checkpoint").foreachBatch(write)
    return list(_seconds(writer.trigger(availableNow=True).start())), busy


def ours(spark: SparkSession, incoming: str, folder: Path) -> tuple[list[float], Metered]:
    """Handle what comes; return the seconds of each micro-batch, and what was counted."""
    place = TablePlace(f"sqlite:///{folder}/stream.db", TABLE)
    metered = Metered(app, place, f"{folder}/out", "bench", f"{folder}/checkpoint")
    lines = open_source(spark, incoming, "json", max_files=1)
    return list(_seconds(metered.start(lines, "available-now"))), metered


def whole(spark: SparkSession, incoming: str, folder: Path) -> tuple[float, float]:
    """Run all messages as one batch, and return its seconds, and how many the processor was busy."""
    begun, busy = time.perf_counter(), processor_time()
    run_batch(spark, incoming, app, store=f"sqlite:///{folder}/batch.db", table=TABLE, out=f"{folder}/batch")
    return time.perf_counter() - begun, processor_time() - busy


def _seconds(query: StreamingQuery) -> Iterator[float]:
    """Wait for the end of a query, and give the seconds of each of its micro-batches."""
    query.awaitTermination()
    for progress in query.recentProgress:
        yield progress.durationMs["triggerExecution"] / 1_000


def main(
    messages: Annotated[int, typer.Option(min=1, help="In each micro-batch.")] = 1_000,
    epochs: Annotated[int, typer.Option(min=10, help="How many micro-batches.")] = 100,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="How many games are played at once; all unless given.")
    ] = None,
    is_whole: Annotated[  # noqa: FBT002 - typer makes a flag of it
        bool, typer.Option("--whole", help="Run the same messages as one batch, too.")
    ] = False,
) -> None:
    """Measure what a stream costs."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        incoming = folder / "incoming"
        write_files(incoming, epochs, messages, at_once)
        kept = {"spark.sql.streaming.numRecentProgressUpdates": str(epochs + 1)}
        spark = build_session("local[2]", log_file=folder / "spark.log", settings=kept)
        warm = epochs // 10
        all_of_theirs, busy = plain(spark, str(incoming), folder)
        mine, counted = ours(spark, str(incoming), folder)
        theirs, taken = all_of_theirs[warm:], mine[warm:]
        _print("plain foreachBatch", theirs)
        _print("run_stream", taken)
        more = [_percentile(taken, share) - _percentile(theirs, share) for share in (50, 99)]
        print(
            f"more: p50 {more[0]:.3f} s, p99 {more[1]:.3f} s; goal at most {GOAL_SECONDS} s for 1,000 messages"
        )
        fifth = max(1, len(taken) // 5)
        at_the_end = statistics.median(taken[-fifth:]) - statistics.median(theirs[-fifth:])
        print(f"more in the last fifth of the epochs, when Java has compiled most: p50 {at_the_end:.3f} s")
        each = [_of_each(seconds[warm:]) for seconds in (busy, counted.busy)]
        print(
            f"processor for each: {each[0]:.3f} s and {each[1]:.3f} s, {each[1] / each[0]:.2f} times as much"
        )
        _print_growth("seconds", taken)
        _print_growth("requests of the driver", counted.requests)
        _print_growth("memory of the driver, MB", counted.megabytes)
        if len(counted.heap) > 1:
            _print_growth("heap of Java, MB", counted.heap)
        size = sum(path.stat().st_size for path in (folder / "checkpoint").rglob("*") if path.is_file())
        print(f"checkpoint: {size / epochs:,.0f} bytes for each epoch")
        if is_whole:
            seconds, processor = whole(spark, str(incoming), folder)
            share, at_the_end = (
                seconds / epochs / of_each
                for of_each in (statistics.fmean(taken), statistics.fmean(taken[-fifth:]))
            )
            times = each[1] * epochs / processor
            print(
                f"one batch: {seconds:.1f} s; the stream has {share:.2f} of its speed, with {times:.2f} times its "
                f"processor time; in the last fifth of the epochs {at_the_end:.2f}, goal {GOAL_SHARE}"
            )
        spark.stop()


def _of_each(busy: Sequence[float]) -> float:
    """Return how much more time of the processor each micro-batch took, of what was taken after each."""
    return (busy[-1] - busy[0]) / (len(busy) - 1)


def _print(name: str, seconds: Sequence[float]) -> None:
    p50, p99 = (_percentile(seconds, share) for share in (50, 99))
    print(f"{name:<20} p50 {p50:.3f} s, p99 {p99:.3f} s, {len(seconds)} micro-batches")


def _percentile(values: Sequence[float], share: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[share - 1]


def _print_growth(name: str, values: Sequence[float]) -> None:
    fifth = max(1, len(values) // 5)
    first, last = statistics.median(values[:fifth]), statistics.median(values[-fifth:])
    print(f"{name}: {first:.2f} in the first fifth of the epochs, {last:.2f} in the last")


if __name__ == "__main__":
    typer.run(main)
