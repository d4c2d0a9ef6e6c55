"""Checking a table on Spark: each task checks ranges of its partitions, and tells the faults that it found."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from runtime.algorithms.counts import object_keys
from runtime.batch_options import TablePlace
from runtime.cleanup.checking import Checked, check_table
from runtime.errors import BatchFailedError
from runtime.spark.ranges import key_ranges, ranges_in
from runtime.spark.sessions.failures import failing_as
from runtime.spark.sessions.settings import job_settings
from runtime.spark.workers.connection import check_reach, open_table
from runtime.storage.damage import placed

_FOUND = StructType([StructField("found", StringType())])


@dataclass(frozen=True)
class CheckJob:
    """All that a worker needs to check ranges of a table, and to repair what is found if that is wanted."""

    place: TablePlace = field(repr=False)
    repair: bool = False

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Check the ranges that come in, and give what each amounts to, as JSON."""
        connection = open_table(self.place.store, self.place.table, make=False)
        for keys in ranges_in(batches):
            with placed(connection.table):
                checked = connection.run(check_table(connection.table, keys, repair=self.repair))
            yield pa.RecordBatch.from_pydict({"found": [json.dumps(checked.document())]})


def check_on_spark(spark: SparkSession, place: TablePlace, *, repair: bool = False) -> Checked:
    """Check a table as `runtime.cleanup.checking` does without Spark, on all workers of a session.

    The driver holds the first faults of each range only. It reads the keys of all objects first, to split them: two
    requests for each 1,000. Raises `TableNotFoundError`, and `BatchFailedError` when the job failed; a repair that was
    broken off goes on when it is run again.
    """
    connection = open_table(place.store, place.table, make=False)
    check_reach(connection, spark)
    job, checked = CheckJob(place.for_workers(), repair), Checked()
    with job_settings(spark):
        ranges = key_ranges(spark, connection, object_keys(connection.table))
        with failing_as(BatchFailedError):
            rows = ranges.mapInArrow(job.run, _FOUND).collect()
    for row in rows:
        checked.update(Checked.of(json.loads(row["found"])))
    return checked
