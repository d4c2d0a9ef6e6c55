"""The truncation job: every stream of a table, cut by the same rules, on all workers of a Spark session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from eventstore import KeyRange, split_streams
from eventstore.connect import portable_url
from runtime.algorithms.state_based.truncation import Truncated, TruncationRules, truncate_stream
from runtime.batches.ledger import Ledger
from runtime.batches.open_batches import OpenBatches
from runtime.clock import Clock, system_clock
from runtime.errors import BatchFailedError
from runtime.retries import RetryPolicy
from runtime.spark.beginning import check_session
from runtime.spark.sessions.failures import SPARK_FAILURES, explain
from runtime.spark.sessions.settings import job_settings
from runtime.spark.workers.concurrency import ConcurrencyLimit
from runtime.spark.workers.connection import Connection, check_reach, open_table
from runtime.spark.workers.job import Wrap
from runtime.storage.listing import stream_keys

REPORT = StructType(
    [
        StructField("stream", StringType()),
        StructField("versions", LongType()),
        StructField("runs", LongType()),
        StructField("kept_from", LongType()),
        StructField("newest", LongType()),
        StructField("horizon", TimestampType()),
    ]
)
"""One row for each stream: how many versions and runs were cut, and what is kept."""

_RANGES = StructType([StructField(name, StringType()) for name in ("prefix", "first", "before")])
_RANGES_OF_A_CORE = 4


@dataclass(frozen=True)
class TruncationJob:
    """All that a worker needs to truncate streams."""

    store: str = field(repr=False)
    table: str
    rules: TruncationRules
    dry_run: bool
    in_flight: int = 32
    wrap: Wrap | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Truncate the streams of the ranges of keys that come in, and report each."""
        connection = open_table(self.store, self.table, make=False)
        concurrency = ConcurrencyLimit(self.in_flight)
        table = self.wrap(connection.table) if self.wrap else connection.table
        table = connection.measured(table, concurrency)
        for row in (row for batch in batches for row in batch.to_pylist()):
            keys = connection.run(stream_keys(connection.table, KeyRange(**row)))
            work = (
                truncate_stream(table, key, self.rules, RetryPolicy(), dry_run=self.dry_run) for key in keys
            )
            yield _report([found for found in connection.run_all(work, concurrency) if found is not None])


def truncate(
    spark: SparkSession,
    *,
    store: str,
    table: str,
    older_than: int | None = None,
    keep_last: int | None = None,
    redelivery_window: int = 0,
    allow_undated: bool = False,
    allow_young: bool = False,
    dry_run: bool = False,
    clock: Clock = system_clock,
    wrap: Wrap | None = None,
) -> DataFrame:
    """Cut old versions of all state streams of a table, and return a DataFrame with a row for each stream.

    A version goes only when every rule given lets it: `older_than` (microseconds), `keep_last` (versions of each
    stream). It never goes when its batch is not published or abandoned, when it is in the newest run of its stream,
    or, without `allow_young`, within a day. `redelivery_window` (microseconds) is added to the horizon for logs
    whose broker stamps each copy anew. With `dry_run` nothing is written. The work is done when this returns.

    Raises `UsageError` for rules that make no sense, `TableNotFoundError` when there is no such table, and
    `BatchFailedError` when the job failed: run it again.
    """
    check_session(spark)
    given: dict[str, Any] = {
        "older_than": older_than,
        "keep_last": keep_last,
        "redelivery_window": redelivery_window,
        "allow_undated": allow_undated,
        "allow_young": allow_young,
    }
    TruncationRules.of(
        clock(), OpenBatches(), **given
    )  # what cannot be is refused before the table is looked for
    connection = open_table(store, table, make=False)
    check_reach(connection, spark)
    ledger = Ledger(connection.table, clock)
    rules = TruncationRules.of(clock(), connection.run(ledger.open_batches(dry_run=dry_run)), **given)
    job = TruncationJob(portable_url(store), table, rules, dry_run, wrap=wrap)
    with job_settings(spark):
        ranges = _ranges(spark, connection)
        try:
            rows = ranges.mapInArrow(job.run, REPORT).toArrow()
        except SPARK_FAILURES as error:
            raise BatchFailedError(explain(error)) from error
    if older_than is not None and not dry_run:
        connection.run(ledger.prune(rules.cut_off))
    return spark.createDataFrame(rows, REPORT)


def _ranges(spark: SparkSession, connection: Connection) -> DataFrame:
    parts = _RANGES_OF_A_CORE * spark.sparkContext.defaultParallelism
    ranges: Any = [astuple(keys) for keys in connection.run(split_streams(connection.table, parts))]
    return spark.createDataFrame(ranges, _RANGES).repartition(len(ranges))


def _report(found: list[Truncated]) -> pa.RecordBatch:
    horizons = pa.array([each.horizon for each in found], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    columns = [
        pa.array([each.stream for each in found], pa.string()),
        pa.array([each.versions for each in found], pa.int64()),
        pa.array([each.runs for each in found], pa.int64()),
        pa.array([each.kept_from for each in found], pa.int64()),
        pa.array([each.newest for each in found], pa.int64()),
        horizons,
    ]
    return pa.RecordBatch.from_arrays(columns, names=REPORT.fieldNames())
