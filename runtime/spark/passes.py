"""Passes over a partition: the first of a round; with an outbox the second, which finishes messages, and the sweep."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StringType, StructField, StructType

from runtime.algorithms.choice import Dependencies, make_outboxes
from runtime.messages.message_ids import id_key
from runtime.messages.outcome import Outcome, Status
from runtime.messages.outcomes import Outcomes
from runtime.spark.workers.job import FoldJob
from runtime.spark.workers.meter import Teller
from runtime.spark.workers.outcomes import to_arrow
from runtime.spark.workers.parts import Fold

_FINISHED = StructType([StructField("entities", LongType())])
_ENTITY = StructType([StructField(name, StringType()) for name in ("handler", "business_id")])


class Work(NamedTuple):
    """What gives the outcomes of a round: rows, and the fold that workers run over each partition of them.

    `streams` is how many it works through whatever messages they hold. `is_planned_once` says that nothing that Spark
    could learn between its stages would change how the rest is run.
    """

    rows: DataFrame
    fold: Fold
    streams: int | None = None
    is_planned_once: bool = False


def finish(outcomes: DataFrame, job: FoldJob, partitions: int) -> None:
    """Finish, in their entities, the messages of committed outcomes. Repeating it changes nothing."""
    known = outcomes.where(sf.col("status").isin(Status.PROCESSED.value, Status.DUPLICATE.value))
    by_entity = (
        known.repartition(partitions, "handler", "business_id")
        .groupBy("handler", "business_id")
        .agg(sf.collect_set("message_id").alias("message_ids"))
    )
    finished = by_entity.mapInArrow(SecondPass(job).run, _FINISHED)
    finished.write.format("noop").mode("overwrite").save()


def unfinished(spark: SparkSession, job: FoldJob, latest: int, partitions: int) -> Work:
    """Return what gives outcomes of the messages whose worker or batch died for good: duplicates with their outputs.

    Single messages count when they were handled at a time, in microseconds, or before.
    """
    connection, _, dependencies = job.open()
    keys = connection.run(_keys(job, dependencies))
    entities = spark.createDataFrame(keys, _ENTITY).repartition(partitions)
    return Work(entities, Sweep(job, latest).run, len(keys))


async def _keys(job: FoldJob, dependencies: Dependencies) -> list[tuple[str, str]]:
    """Return handler and business id of each entity that has something pending."""
    found = []
    for handler, algorithm in make_outboxes(job.algorithm, dependencies).items():
        keys = algorithm.entities.unfinished()
        found += [(handler, algorithm.entities.business_id(key)) async for key in keys]
    return found


@dataclass(frozen=True)
class SecondPass:
    """The second pass over the entities of a partition."""

    job: FoldJob

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Finish the messages of each entity that comes in, and give the number of entities."""
        connection, concurrency, dependencies = self.job.open()
        finished = sum(1 for _ in connection.run_all(self._work(dependencies, batches), concurrency))
        yield pa.RecordBatch.from_pydict({"entities": pa.array([finished], pa.int64())})

    def _work(
        self, dependencies: Dependencies, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[Coroutine[Any, Any, None]]:
        algorithms = make_outboxes(self.job.algorithm, dependencies)
        for row in _rows(batches):
            message_ids = [id_key(message_id) for message_id in sorted(row["message_ids"])]
            yield algorithms[row["handler"]].finish(row["business_id"], message_ids)


@dataclass(frozen=True)
class Sweep:
    """Looks for unfinished messages in the entities of a partition."""

    job: FoldJob
    latest: int

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the outcomes of the unfinished messages of each entity that comes in."""
        connection, concurrency, dependencies = self.job.open()
        teller = Teller(self.job.counts)
        for outcomes in connection.run_all(self._work(dependencies, batches), concurrency):
            yield to_arrow([Outcomes.of(outcomes)])
            teller.add(messages=len(outcomes), streams=1)
        teller.tell()

    def _work(
        self, dependencies: Dependencies, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[Coroutine[Any, Any, list[Outcome]]]:
        algorithms = make_outboxes(self.job.algorithm, dependencies)
        for row in _rows(batches):
            yield algorithms[row["handler"]].unfinished(row["business_id"], self.latest)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()
