"""Counting what a table holds on Spark: each task counts ranges of the table, and gives a row for each handler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from runtime.algorithms.counts import HandlerCount, TableCount, count_objects, count_rows, object_keys
from runtime.batch_options import TablePlace
from runtime.errors import BatchFailedError, StoredDataError
from runtime.spark.ranges import key_ranges, ranges_in
from runtime.spark.sessions.failures import failing_as
from runtime.spark.sessions.settings import job_settings
from runtime.spark.workers.connection import check_reach, open_table
from runtime.storage.damage import Damaged, collecting, placed, report

_TEXTS = {"handler", "algorithm"}
_COUNTS = StructType(
    [StructField(name, StringType() if name in _TEXTS else LongType()) for name in HandlerCount._fields]
)
_SCHEMA = pa.schema([(name, pa.string() if name in _TEXTS else pa.int64()) for name in HandlerCount._fields])


@dataclass(frozen=True)
class StatsJob:
    """All that a worker needs to count the rows of a table, or only its objects."""

    place: TablePlace = field(repr=False)
    objects_only: bool = False

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count the ranges that come in; what belongs to no handler is in a row without a handler.

        So is each stream that could not be read, with the error in place of an algorithm.
        """
        connection = open_table(self.place.store, self.place.table, make=False)
        count = count_objects if self.objects_only else count_rows
        for keys in ranges_in(batches):
            damaged = Damaged()
            with collecting(damaged), placed(connection.table):
                found = connection.run(count(connection.table, keys))
            others = HandlerCount("", "", rows=found.other_rows, bytes=found.other_bytes)
            broken = [HandlerCount("", str(error)) for error in damaged.errors]
            rows = [each._asdict() for each in (*found.handlers, others, *broken)]
            yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def count_table(spark: SparkSession, place: TablePlace, *, objects_only: bool = False) -> TableCount:
    """Count what a table holds, as `runtime.algorithms.counts` does without Spark.

    The driver holds sums only. It reads the keys of all objects first, to split them: two requests for each 1,000.
    Raises `TableNotFoundError`, and `BatchFailedError` when the job failed.
    """
    connection = open_table(place.store, place.table, make=False)
    check_reach(connection, spark)
    job = StatsJob(place.for_workers(), objects_only)
    counted = TableCount()
    with job_settings(spark):
        ranges = key_ranges(spark, connection, object_keys(connection.table))
        with failing_as(BatchFailedError):
            rows: list[dict[str, Any]] = ranges.mapInArrow(job.run, _COUNTS).toArrow().to_pylist()
    for found in (HandlerCount(**row) for row in rows):
        if found.handler:
            counted.add(found)
        elif found.algorithm:
            report(StoredDataError(found.algorithm))
        else:
            counted.add_others(found.rows, found.bytes)
    return counted
