"""Scans of a table: one function over ranges of its partition keys, on all workers of a session.

What a task finds comes back as JSON, one document a row: it is the only form in which results travel.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from eventstore import KeyRange, Table
from eventstore.stream import read_range, split_keys
from handlers import App
from runtime.algorithms.choice import AlgorithmName, Dependencies, check_stores, make_outboxes
from runtime.algorithms.outbox.algorithm import OutboxAlgorithm
from runtime.algorithms.outbox.entity import ENTITY
from runtime.batch_options import TablePlace
from runtime.clock import Clock, cut_off, system_clock
from runtime.errors import BatchFailedError, StoredDataError
from runtime.maintenance.statistics import object_keys
from runtime.retries import until_undisturbed
from runtime.spark.preflight import Probe, check_workers
from runtime.spark.session import cores_of, failing_as, job_settings
from runtime.spark.worker.connection import ConcurrencyLimit, Connection, check_reach, open_table
from runtime.versions.properties import Damaged, collecting, placed, report

RANGES_OF_A_CORE = 4
FOUND = "found"
RANGES = StructType([StructField(name, StringType()) for name in ("prefix", "first", "before")])
FOUND_SCHEMA = StructType([StructField(FOUND, StringType())])
_ARROW = pa.schema([(FOUND, pa.string())])

Documents = Iterable[Sequence[Any]]
"""Values for JSON, some at a time."""


class Job(Protocol):
    """What the workers of a scan do. Is sent to them, and begun once by each task."""

    def begin(self, connection: Connection) -> Callable[[KeyRange], Documents]:
        """Return the function that a task calls with one range after another."""


class Found(Protocol):
    """What was found in a range."""

    def document(self) -> Any:  # noqa: ANN401 - a value for JSON
        """Return it for JSON."""


@dataclass(frozen=True)
class ForEachRange:
    """The job of calling an async function, which gives one result for each range.

    Streams that cannot be read are left out of the result, and their errors follow it.
    """

    function: Callable[[Table, KeyRange], Coroutine[Any, Any, Found]]

    def begin(self, connection: Connection) -> Callable[[KeyRange], Documents]:
        """Return what calls the function."""
        return partial(self._scan, connection)

    def _scan(self, connection: Connection, keys: KeyRange) -> Documents:
        damaged = Damaged()
        with collecting(damaged), placed(connection.table):
            found = connection.run(self.function(connection.table, keys))
        yield with_damage(found.document(), damaged)


def with_damage(document: object, damaged: Damaged) -> list[Any]:
    """Return a result with the errors of the streams that it leaves out."""
    return [{"result": document, "damaged": [str(error) for error in damaged.errors]}]


@dataclass(frozen=True)
class Task:
    """What a task of Spark does: calls the function of a job with each of its ranges."""

    job: Job
    place: TablePlace = field(repr=False)
    other: TablePlace | None = field(default=None, repr=False)

    def results(self, ranges: Iterable[KeyRange]) -> Documents:
        """Scan some ranges, one after another."""
        function = self.job.begin(open_table(self.place.store, self.place.table, self.other, make=False))
        for keys in ranges:
            yield from function(keys)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Scan the ranges that come in, and yield documents as JSON."""
        ranges = (KeyRange(**row) for batch in batches for row in batch.to_pylist())
        for documents in self.results(ranges):
            yield pa.RecordBatch.from_arrays(
                [pa.array(map(json.dumps, documents), pa.string())], schema=_ARROW
            )


def scanned(spark: SparkSession, task: Task, ranges: Sequence[KeyRange]) -> DataFrame:
    """Return what a task finds in some ranges: a column of documents. Each action scans again."""
    keys: Any = list(map(astuple, ranges))
    return spark.createDataFrame(keys, RANGES).repartition(len(keys)).mapInArrow(task.run, FOUND_SCHEMA)


def documents_of(found: DataFrame) -> Iterator[Any]:
    """Scan, and yield the documents. Raises `BatchFailedError` when the job failed."""
    with failing_as(BatchFailedError):
        rows = found.collect()
    return (json.loads(row[FOUND]) for row in rows)


def scan(
    spark: SparkSession,
    place: TablePlace,
    job: Job,
    merge: Callable[[Any], object],
    *,
    other: TablePlace | None = None,
    prefix: str = "",
) -> None:
    """Call a job's function with ranges of the keys of all streams and entities, and `merge` with each result.

    The ranges, four for each core, hold about as many objects each, and together all keys with a prefix. To split them
    takes two requests for each 1,000 objects. Errors of streams that could not be read are reported as damage.

    Raises `UsageError` where workers would not see the same store, `TableNotFoundError`, and `BatchFailedError` when
    the job failed.
    """
    connection = open_table(place.store, place.table, other, make=False)
    check_reach(connection, spark)
    parts = RANGES_OF_A_CORE * cores_of(spark)
    ranges = connection.run(split_keys(object_keys(connection.table, prefix), parts, prefix))
    task = Task(job, place.for_workers(), None if other is None else other.for_workers())
    with job_settings(spark):
        for document in documents_of(scanned(spark, task, ranges)):
            for problem in document["damaged"]:
                report(StoredDataError(problem))
            merge(document["result"])


# Eviction on Spark: old ids are forgotten by ranges of entities, on all workers of a session.


@dataclass(frozen=True)
class EvictJob:
    """The job of forgetting ids. `latest` is the time, in microseconds, at or before which they go."""

    app: App
    algorithm: AlgorithmName
    latest: int
    dry_run: bool
    in_flight: int = 32

    def begin(self, connection: Connection) -> Callable[[KeyRange], Documents]:
        """Return what forgets the ids of a range of entities, and gives their number."""
        concurrency = ConcurrencyLimit(self.in_flight)
        table = connection.measured(connection.table, concurrency)
        other = connection.measured(connection.other, concurrency)
        outboxes = make_outboxes(self.algorithm, Dependencies(self.app, table, deduplication_store=other))

        def evict_from(keys: KeyRange) -> Documents:
            entities, damaged = connection.run(_entities(connection.table, keys)), Damaged()
            with collecting(damaged):
                forgotten = sum(connection.run_all(self._work(outboxes, entities), concurrency))
            yield with_damage(forgotten, damaged)

        return evict_from

    def _work(
        self, outboxes: dict[str, OutboxAlgorithm], entities: Iterable[str]
    ) -> Iterator[Coroutine[Any, Any, int]]:
        for key in entities:
            outbox = outboxes.get(key.partition("-")[0])
            if outbox is not None:
                evict = partial(outbox.evict_from, key, self.latest, dry_run=self.dry_run)
                yield until_undisturbed(outbox.retries, evict)


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
    check_reach(open_table(place.store, place.table, ids, make=False), spark)
    check_workers(spark, Probe(app, place.for_workers(), None if ids is None else ids.for_workers()))
    counts: list[int] = []
    scan(
        spark, place, EvictJob(app, algorithm, cut_off(clock, older_than), dry_run), counts.append, other=ids
    )
    return sum(counts)


async def _entities(table: Table, keys: KeyRange) -> list[str]:
    return [row.partition_key async for row in read_range(table, ENTITY, keys, ())]
