"""Eviction on Spark: old ids are forgotten by ranges of entities, on all workers of a session."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from eventstore import KeyRange, Table
from eventstore.listing import read_range
from handlers import App
from runtime.algorithms.choice import AlgorithmName, Dependencies, check_stores, make_outboxes
from runtime.algorithms.outbox.algorithm import OutboxAlgorithm
from runtime.algorithms.outbox.entities import ENTITY
from runtime.clock import Clock, cut_off, system_clock
from runtime.retries import until_undisturbed
from runtime.spark.beginning import Probe, check_workers
from runtime.spark.scan import Documents, scan, with_damage
from runtime.spark.workers.concurrency import ConcurrencyLimit
from runtime.spark.workers.connection import Connection, TablePlace, check_reach, open_table
from runtime.storage.damage import Damaged, collecting


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
