"""Scans of a table: one function over ranges of its partition keys, on all workers of a session.

What a task finds comes back as JSON, one document a row: it is the only form in which results travel.
"""

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
from runtime.versions.properties import Damaged, collecting, placed, report

RANGES_OF_A_CORE = 4
FOUND = "found"
FOUND_SCHEMA = f"{FOUND} string"

Documents = Iterator[Sequence[Any]]
"""Values for JSON, some at a time."""

Job = Callable[[Connection, Iterable[KeyRange]], Documents]
"""What a task of Spark does with some ranges, one after another. Is sent to the workers."""


@dataclass(frozen=True)
class Task:
    """A job, and the tables that it is done on."""

    job: Job
    place: TablePlace = field(repr=False)
    other: TablePlace | None = field(default=None, repr=False)

    def results(self, ranges: Iterable[KeyRange]) -> Documents:
        """Scan some ranges, one after another."""
        return self.job(open_table(self.place.store, self.place.table, self.other, make=False), ranges)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Scan the ranges that come in, and yield documents as JSON."""
        ranges = (KeyRange(**row) for batch in batches for row in batch.to_pylist())
        for documents in self.results(ranges):
            yield pa.RecordBatch.from_pydict({FOUND: pa.array(map(json.dumps, documents), pa.string())})


def scanned(spark: SparkSession, task: Task, ranges: Sequence[KeyRange]) -> DataFrame:
    """Return what a task finds in some ranges: a column of documents. Each action scans again."""
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
    """Call an async function with ranges of the keys of all streams and entities, and `merge` with each result.

    A result is what its `document()` returns, a value for JSON. The ranges, four for each core, hold about as many
    objects each, and together all keys with a prefix. To split them takes two requests for each 1,000 objects. Streams
    that cannot be read are left out of the results, and are reported as damage.

    Raises `UsageError` where workers would not see the same store, `TableNotFoundError`, and `BatchFailedError` when
    the job failed.
    """
    _scan(spark, place, partial(_each_range, function), merge, prefix=prefix)


def _each_range(
    function: Callable[[Table, KeyRange], Coroutine[Any, Any, Any]],
    connection: Connection,
    ranges: Iterable[KeyRange],
) -> Documents:
    for keys in ranges:
        damaged = Damaged()
        with collecting(damaged), placed(connection.table):
            found = connection.run(function(connection.table, keys))
        yield _with_damage(found.document(), damaged)


def _with_damage(result: object, damaged: Damaged) -> Sequence[Any]:
    return [{"result": result, "damaged": list(map(str, damaged.errors))}]


def _scan(
    spark: SparkSession,
    place: TablePlace,
    job: Job,
    merge: Callable[[Any], object],
    *,
    other: TablePlace | None = None,
    prefix: str = "",
) -> None:
    connection = open_table(place.store, place.table, other, make=False, spark=spark)
    parts = RANGES_OF_A_CORE * cores_of(spark)
    ranges = connection.run(split_keys(object_keys(connection.table, prefix), parts, prefix))
    task = Task(job, place.for_workers(), other and other.for_workers())
    with job_settings(spark):
        for document in documents_of(scanned(spark, task, ranges)):
            for problem in document["damaged"]:
                report(StoredDataError(problem))
            merge(document["result"])


def _evict(
    app: App,
    algorithm: AlgorithmName,
    latest: int,
    connection: Connection,
    ranges: Iterable[KeyRange],
    *,
    dry_run: bool,
) -> Documents:
    """Forget ids of ranges of entities: those of `latest`, in microseconds, or before."""
    concurrency = ConcurrencyLimit(32)
    table = connection.measured(connection.table, concurrency)
    other = connection.measured(connection.other, concurrency)
    outboxes = make_outboxes(algorithm, Dependencies(app, table, deduplication_store=other))

    async def entities(keys: KeyRange) -> list[str]:
        return [row.partition_key async for row in read_range(connection.table, ENTITY, keys, ())]

    def work(found: Iterable[str]) -> Iterator[Coroutine[Any, Any, int]]:
        for key in found:
            outbox = outboxes.get(key.partition("-")[0])
            if outbox is not None:
                evict = partial(outbox.evict_from, key, latest, dry_run=dry_run)
                yield until_undisturbed(outbox.retries, evict)

    for keys in ranges:
        found, damaged = connection.run(entities(keys)), Damaged()
        with collecting(damaged):
            forgotten = sum(connection.run_all(work(found), concurrency))
        yield _with_damage(forgotten, damaged)


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
    """Forget the ids of messages that were processed longer ago, as `Processor.evict` does. Return how many.

    `ids` is the place of the de-duplication store, None for the table of the states. Costs what `scan` does, and the
    requests of `Processor.evict`. Raises `UsageError` for a store that the algorithm does not use, what `scan` raises,
    after which it can be run again, and when all others are done `StoredDataError` for an entity that cannot be read.
    """
    check_stores(algorithm, deduplication_store=ids, token_store=None)
    open_table(place.store, place.table, ids, make=False, spark=spark)
    check_workers(spark, partial(reach, app, place.for_workers(), ids and ids.for_workers()))
    counts: list[int] = []
    job = partial(_evict, app, algorithm, cut_off(clock, older_than), dry_run=dry_run)
    _scan(spark, place, job, counts.append, other=ids)
    return sum(counts)
