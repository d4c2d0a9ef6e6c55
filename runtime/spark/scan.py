"""Scan a table on all workers: a function is called for ranges of partition keys, and returns JSON documents."""

import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from eventstore import KeyRange, Table
from eventstore.stream import split_keys
from runtime.batch_options import TablePlace
from runtime.errors import BatchFailedError, StoredDataError
from runtime.maintenance.statistics import object_keys
from runtime.spark.session import cores_of, failing_as, job_settings
from runtime.spark.worker.connection import Connection, open_table
from runtime.spark.worker.outcomes import rows_of
from runtime.versions.properties import Damaged, collecting, error_location, report

RANGES_OF_A_CORE = 4
FOUND = "found"
FOUND_SCHEMA = f"{FOUND} string"

Documents = Iterator[Sequence[Any]]  # lists of JSON values
Job = Callable[[Connection, Iterable[KeyRange]], Documents]
"""Called on a worker, with the key ranges of its task."""


@dataclass(frozen=True)
class Task:
    """A job with the tables that it scans."""

    job: Job
    place: TablePlace = field(repr=False)
    other: TablePlace | None = field(default=None, repr=False)

    def results(self, ranges: Iterable[KeyRange]) -> Documents:
        return self.job(open_table(self.place.store, self.place.table, self.other, make=False), ranges)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Scan the given ranges, and yield JSON documents."""
        ranges = (KeyRange(**row) for row in rows_of(batches))
        for documents in self.results(ranges):
            yield pa.RecordBatch.from_pydict({FOUND: pa.array(map(json.dumps, documents), pa.string())})


def scanned(spark: SparkSession, task: Task, ranges: Sequence[KeyRange]) -> DataFrame:
    """Return the documents of a task as a column. Each action on the DataFrame repeats the scan."""
    keys = spark.createDataFrame(list(map(astuple, ranges)), "prefix string, first string, before string")
    return keys.repartition(len(ranges)).mapInArrow(task.run, FOUND_SCHEMA)


def documents_of(found: DataFrame) -> Iterator[Any]:
    """Run a scan, and return its documents. Raises `BatchFailedError`."""
    with failing_as(BatchFailedError):
        rows = found.collect()
    return (json.loads(row[FOUND]) for row in rows)


def scan(
    spark: SparkSession,
    place: TablePlace,
    function: Callable[[Table, KeyRange], Coroutine[Any, Any, Any]],
    merge: Callable[[Any], object],
    *,
    prefix: str = "",
) -> None:
    """Call an async function for ranges of stream and entity keys, and `merge` with the `document()` of each result.

    There are four ranges per core, with about the same number of objects. Splitting costs two requests for every 1,000
    objects. Corrupt streams are reported.

    Raises `UsageError` if workers would not see the same store, `TableNotFoundError`, and `BatchFailedError`.
    """

    def document(connection: Connection, keys: KeyRange) -> object:
        with error_location(connection.table):
            return connection.run(function(connection.table, keys)).document()

    scan_with(spark, place, document, merge, prefix=prefix)


def scan_with(
    spark: SparkSession,
    place: TablePlace,
    document: Callable[[Connection, KeyRange], object],
    merge: Callable[[Any], object],
    *,
    other: TablePlace | None = None,
    prefix: str = "",
) -> None:
    """Call `document` for each key range and `merge` with its results. `document` may also use the table `other`."""

    def job(connection: Connection, ranges: Iterable[KeyRange]) -> Documents:
        for keys in ranges:
            damaged = Damaged()
            with collecting(damaged):
                result = document(connection, keys)
            yield [{"result": result, "damaged": list(map(str, damaged.errors))}]

    connection = open_table(place.store, place.table, other, make=False, spark=spark)
    parts = RANGES_OF_A_CORE * cores_of(spark)
    ranges = connection.run(split_keys(object_keys(connection.table, prefix), parts, prefix))
    task = Task(job, place.for_workers(), other and other.for_workers())
    with job_settings(spark):
        for found in documents_of(scanned(spark, task, ranges)):
            for problem in found["damaged"]:
                report(StoredDataError(problem))
            merge(found["result"])
