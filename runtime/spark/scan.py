"""Scans of a table: one function over ranges of its partition keys, on all workers. Results are JSON documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from eventstore import KeyRange, Table
from eventstore.stream import read_range, split_keys
from handlers import App
from runtime.algorithms.choice import AlgorithmName, Dependencies, check_stores, make_outboxes
from runtime.algorithms.outbox.entity import ENTITY
from runtime.batch_options import TablePlace
from runtime.clock import Clock, cut_off, system_clock
from runtime.errors import BatchFailedError, StoredDataError
from runtime.maintenance.statistics import object_keys
from runtime.retries import until_undisturbed
from runtime.spark.session import check_workers, cores_of, failing_as, job_settings
from runtime.spark.worker.connection import ConcurrencyLimit, Connection, open_table, reach
from runtime.spark.worker.outcomes import rows_of
from runtime.versions.properties import Damaged, collecting, placed, report

RANGES_OF_A_CORE = 4
FOUND = "found"
FOUND_SCHEMA = f"{FOUND} string"

Documents = Iterator[Sequence[Any]]  # values for JSON, some at a time
Job = Callable[[Connection, Iterable[KeyRange]], Documents]
"""Is sent to the workers, which call it with their ranges."""


@dataclass(frozen=True)
class Task:
    """A job, and its tables."""

    job: Job
    place: TablePlace = field(repr=False)
    other: TablePlace | None = field(default=None, repr=False)

    def results(self, ranges: Iterable[KeyRange]) -> Documents:
        """Scan ranges, one after another."""
        return self.job(open_table(self.place.store, self.place.table, self.other, make=False), ranges)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Scan the ranges that come in, and yield documents as JSON."""
        ranges = (KeyRange(**row) for row in rows_of(batches))
        for documents in self.results(ranges):
            yield pa.RecordBatch.from_pydict({FOUND: pa.array(map(json.dumps, documents), pa.string())})


def scanned(spark: SparkSession, task: Task, ranges: Sequence[KeyRange]) -> DataFrame:
    """Return a column of the documents of a task. Each action scans again."""
    keys = spark.createDataFrame(list(map(astuple, ranges)), "prefix string, first string, before string")
    return keys.repartition(len(ranges)).mapInArrow(task.run, FOUND_SCHEMA)


def documents_of(found: DataFrame) -> Iterator[Any]:
    """Scan, and yield the documents. Raises `BatchFailedError` when the job failed."""
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
    """Call an async function with ranges of the keys of all streams and entities, and `merge` with each `document()`.

    The ranges, four for each core, have about the same number of objects, and together all keys with a prefix. To split
    them takes two requests for each 1,000 objects. Streams that cannot be read are reported as damage.

    Raises `UsageError` where workers would not see the same store, `TableNotFoundError`, and `BatchFailedError` when
    the job failed.
    """

    def document(connection: Connection, keys: KeyRange) -> object:
        with placed(connection.table):
            return connection.run(function(connection.table, keys)).document()

    _scan(spark, place, document, merge, prefix=prefix)


def _scan(
    spark: SparkSession,
    place: TablePlace,
    document: Callable[[Connection, KeyRange], object],
    merge: Callable[[Any], object],
    *,
    other: TablePlace | None = None,
    prefix: str = "",
) -> None:
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


def evict(
    spark: SparkSession,
    app: App,
    place: TablePlace,
    older_than: timedelta,
    *,
    algorithm: AlgorithmName,
    ids: TablePlace | None = None,
    dry_run: bool = False,
    clock: Clock = system_clock,
) -> int:
    """Forget the ids of messages that were processed longer ago, as `Processor.evict` does. Return their number.

    `ids` is the place of the de-duplication store, None for the table of the states. Costs what `scan` does, and the
    requests of `Processor.evict`. Raises `UsageError` for a store that the algorithm does not use, what `scan` raises,
    after which it can be run again, and when all others are done `StoredDataError` for an entity that cannot be read.
    """
    check_stores(algorithm, deduplication_store=ids, token_store=None)
    open_table(place.store, place.table, ids, make=False, spark=spark)
    check_workers(spark, partial(reach, app, place.for_workers(), ids and ids.for_workers()))
    counts: list[int] = []
    latest = cut_off(clock, older_than)

    def forgotten(connection: Connection, keys: KeyRange) -> int:
        concurrency = ConcurrencyLimit(32)
        table = connection.measured(connection.table, concurrency)
        other = connection.measured(connection.other, concurrency)
        outboxes = make_outboxes(algorithm, Dependencies(app, table, deduplication_store=other))

        async def entities() -> list[str]:
            return [row.partition_key async for row in read_range(connection.table, ENTITY, keys, ())]

        found = ((key, outboxes.get(key.partition("-")[0])) for key in connection.run(entities()))
        work = (
            until_undisturbed(outbox.retries, partial(outbox.evict_from, key, latest, dry_run=dry_run))
            for key, outbox in found
            if outbox is not None
        )
        return sum(connection.run_all(work, concurrency))

    _scan(spark, place, forgotten, counts.append, other=ids)
    return sum(counts)
