"""Eviction on Spark: old ids are forgotten by ranges of entities, on all workers of a session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from eventstore import KeyRange, Table
from eventstore.listing import read_range
from handlers import App
from runtime.algorithms.choice import AlgorithmName, Dependencies, check_stores, make_outboxes
from runtime.algorithms.outbox.algorithm import OutboxAlgorithm
from runtime.algorithms.outbox.entities import ENTITY
from runtime.batch_options import TablePlace
from runtime.clock import Clock, cut_off, system_clock
from runtime.errors import BatchFailedError, StoredDataError
from runtime.retries import until_undisturbed
from runtime.spark.beginning import Probe, check_workers
from runtime.spark.ranges import key_ranges, ranges_in
from runtime.spark.sessions.failures import failing_as
from runtime.spark.sessions.settings import job_settings
from runtime.spark.workers.concurrency import ConcurrencyLimit
from runtime.spark.workers.connection import check_reach, open_table
from runtime.storage.damage import Damaged, collecting, report

_FORGOTTEN = StructType(
    [StructField("forgotten", LongType()), StructField("damaged", ArrayType(StringType()))]
)


@dataclass(frozen=True)
class EvictJob:
    """All that a worker needs to forget ids. `latest` is the time, in microseconds, at or before which they go."""

    app: App
    algorithm: AlgorithmName
    place: TablePlace = field(repr=False)
    ids: TablePlace | None = field(repr=False)
    latest: int
    dry_run: bool
    in_flight: int = 32

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Forget the ids of the ranges of entities that come in, and give the number of each range."""
        connection = open_table(self.place.store, self.place.table, self.ids, make=False)
        concurrency = ConcurrencyLimit(self.in_flight)
        table = connection.measured(connection.table, concurrency)
        other = connection.measured(connection.other, concurrency)
        outboxes = make_outboxes(self.algorithm, Dependencies(self.app, table, deduplication_store=other))
        for keys in ranges_in(batches):
            entities = connection.run(_entities(connection.table, keys))
            damaged = Damaged()
            with collecting(damaged):
                forgotten = sum(connection.run_all(self._work(outboxes, entities), concurrency))
            errors = [str(error) for error in damaged.errors]
            columns = [pa.array([forgotten], pa.int64()), pa.array([errors], pa.list_(pa.string()))]
            yield pa.RecordBatch.from_arrays(columns, names=_FORGOTTEN.fieldNames())

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

    `ids` is the place of the de-duplication store, None for the table of the states. Costs one request for each 1,000
    entities twice, and those of `Processor.evict` for each entity. Raises `UsageError` for a store that the
    algorithm does not use, `TableNotFoundError`, `BatchFailedError` when the job failed: run it again; and when all
    others are done `StoredDataError` for an entity that cannot be read.
    """
    check_stores(algorithm, deduplication_store=ids, token_store=None)
    connection = open_table(place.store, place.table, ids, make=False)
    check_reach(connection, spark)
    elsewhere = None if ids is None else ids.for_workers()
    check_workers(spark, Probe(app, place.for_workers(), elsewhere))
    latest = cut_off(clock, older_than)
    job = EvictJob(app, algorithm, place.for_workers(), elsewhere, latest, dry_run)
    with job_settings(spark):
        ranges = key_ranges(spark, connection, _keys(connection.table, KeyRange()))
        with failing_as(BatchFailedError):
            rows = ranges.mapInArrow(job.run, _FORGOTTEN).toArrow().to_pylist()
    for problem in (each for row in rows for each in row["damaged"]):
        report(StoredDataError(problem))
    return sum(row["forgotten"] for row in rows)


async def _keys(table: Table, keys: KeyRange) -> AsyncIterator[str]:
    async for row in read_range(table, ENTITY, keys, ()):
        yield row.partition_key


async def _entities(table: Table, keys: KeyRange) -> list[str]:
    return [key async for key in _keys(table, keys)]
