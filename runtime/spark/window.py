"""The windows of a table on Spark: each task looks at ranges of the streams, and the driver adds up what they found."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from eventstore.listing import split_streams
from runtime.batch_options import TablePlace
from runtime.cleanup.window import Windows, windows
from runtime.errors import BatchFailedError, StoredDataError
from runtime.spark.ranges import RANGES, RANGES_OF_A_CORE, ranges_in
from runtime.spark.sessions.failures import failing_as
from runtime.spark.sessions.kinds import cores_of
from runtime.spark.sessions.settings import job_settings
from runtime.spark.workers.connection import check_reach, open_table
from runtime.storage.damage import Damaged, collecting, placed, report

_FOUND = StructType([StructField("found", StringType())])


@dataclass(frozen=True)
class WindowsJob:
    """All that a worker needs to find the windows of ranges of streams."""

    place: TablePlace = field(repr=False)
    limit: int

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the windows of each range that comes in, as JSON, with the errors of streams that could not be read."""
        connection = open_table(self.place.store, self.place.table, make=False)
        for keys in ranges_in(batches):
            damaged = Damaged()
            with collecting(damaged), placed(connection.table):
                found = connection.run(windows(connection.table, keys, self.limit))
            document = {**found.document(), "damaged": [str(error) for error in damaged.errors]}
            yield pa.RecordBatch.from_pydict({"found": [json.dumps(document)]})


def windows_on_spark(
    spark: SparkSession, place: TablePlace, handler: str | None = None, limit: int = 10
) -> Windows:
    """Return the windows of all streams of a table, or of one handler, as `runtime.cleanup.window` does without Spark.

    The driver holds hours and the worst streams only. It reads the keys of the streams first, to split them: one
    request for each 1,000. Raises `TableNotFoundError`, and `BatchFailedError` when the job failed.
    """
    connection = open_table(place.store, place.table, make=False)
    check_reach(connection, spark)
    job, parts = (
        WindowsJob(place.for_workers(), limit),
        RANGES_OF_A_CORE * cores_of(spark),
    )
    prefix = f"{handler}-" if handler else ""
    ranges = [astuple(each) for each in connection.run(split_streams(connection.table, parts, prefix))]
    all_found = Windows(limit)
    with job_settings(spark):
        frame = spark.createDataFrame(ranges, RANGES).repartition(len(ranges))
        with failing_as(BatchFailedError):
            rows = frame.mapInArrow(job.run, _FOUND).collect()
    for document in (json.loads(row["found"]) for row in rows):
        all_found.update(Windows.of(document))
        for problem in document["damaged"]:
            report(StoredDataError(problem))
    return all_found
