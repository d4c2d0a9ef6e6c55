"""Publishing on Spark: the slices of a batch are distributed over tasks, each of which sends some as a whole.

What is published, and what a target promises, is the same as without Spark, and so are the records in the table of the
batch: either goes on where the other was stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from runtime.batches.ledger import Ledger
from runtime.clock import Clock, system_clock
from runtime.errors import TargetError
from runtime.publishing.outputs import BatchOutputs
from runtime.publishing.publisher import Target, TargetOptions
from runtime.publishing.records import Publications
from runtime.publishing.runner import Begun, Published, PublishOptions, begin
from runtime.publishing.tally import Show
from runtime.publishing.targets.choice import open_target
from runtime.publishing.targets.sqlite import SqliteTarget
from runtime.spark.beginning import Probe, check_workers
from runtime.spark.counts import Extent, ShowDone, counted
from runtime.spark.folders import absolute_folder
from runtime.spark.sessions.failures import failing_as
from runtime.spark.sessions.kinds import cores_of, master_of
from runtime.spark.sessions.settings import job_settings
from runtime.spark.workers.connection import TablePlace, check_reach, check_scope, open_table
from runtime.spark.workers.job import Wrap
from runtime.spark.workers.publishing import ROUTED, SENT, RouteJob, SendJob

MakeTarget = Callable[[TargetOptions], Target]


def publish(
    spark: SparkSession,
    batch_id: str,
    to: str | MakeTarget,
    *,
    store: str,
    table: str,
    out: str | None = None,
    target: TargetOptions | None = None,
    options: PublishOptions | None = None,
    clock: Clock = system_clock,
    show: Show | None = None,
    wrap: Wrap | None = None,
) -> Published:
    """Publish what is unpublished of a batch, by slices on all workers of a session; return when all of it is.

    `to` is the url of a target, or a function that workers call with `target` for one of your own. `out` is where the
    outcomes are, if not where the batch wrote them. Each task sends `options.concurrency` slices at once; the rate of
    requests is shared by the tasks. Costs what `runtime.publishing.runner.publish` does, and a shuffle of the outputs.

    Raises `BatchRefusedError` for a batch that has not ended, `UsageError`, and `TargetError` when not all is sent: the
    same call goes on with the rest.
    """
    options, of_target = options or PublishOptions(), target or TargetOptions(batch_id=batch_id)
    if not of_target.keys:
        of_target = replace(of_target, keys=store, keys_table=table)
    make = _maker(to)
    opened, place = make(of_target), TablePlace(store, table)
    connection = open_table(store, table, make=False)
    check_reach(connection, spark)
    if isinstance(opened, SqliteTarget):
        check_scope("machine", master_of(spark))
    record = connection.run(Ledger(connection.table, clock).get(batch_id))
    folder = absolute_folder(out or record.out)
    begun = connection.run(begin(connection.table, record, folder, opened, options=options, clock=clock))
    slices = outputs = 0
    if begun.outputs is not None:
        tasks = min(cores_of(spark), len(begun.waiting), opened.publishers or len(begun.waiting))
        shared = replace(of_target, rate=of_target.rate / tasks if of_target.rate else None)
        job = SendJob(
            place.for_workers(),
            partial(make, shared),
            begun.publication,
            options,
            begun.taken_over(options),
            clock=clock,
            wrap=wrap,
        )
        extent = Extent(None if options.types else record.counts.get("outputs"))
        with job_settings(spark), counted(spark, extent, _showing(begun, show)) as counts:
            check_workers(spark, Probe(job.open_target, job.place, None))
            rows = _sent(_routed(spark, begun.outputs, begun, tasks), replace(job, counts=counts))
        slices, outputs = (sum(row[name] for row in rows) for name in ("slices", "outputs"))
    records = connection.run(Publications(connection.table, clock).records(begun.publication))
    return Published(begun.publication, slices, outputs, records)


@dataclass(frozen=True)
class PublishTo:
    """A target that each epoch of a stream is published to, and how: see `publish`."""

    to: str | MakeTarget = field(repr=False)
    target: TargetOptions = field(default_factory=TargetOptions)
    options: PublishOptions = field(default_factory=PublishOptions)

    def check(self) -> None:
        """Raise `UsageError` when there can be no such target."""
        _maker(self.to)(self.target)

    def publish(self, place: TablePlace, spark: SparkSession, batch_id: str, out: str) -> None:
        """Publish what is unpublished of a batch of a table."""
        target = replace(self.target, batch_id=batch_id)
        publish(
            spark,
            batch_id,
            self.to,
            store=place.store,
            table=place.table,
            out=out,
            target=target,
            options=self.options,
        )


def _maker(to: str | MakeTarget) -> MakeTarget:
    return partial(open_target, to) if isinstance(to, str) else to


def _routed(spark: SparkSession, outputs: BatchOutputs, begun: Begun, tasks: int) -> DataFrame:
    """Return the outputs of the slices that are not sent, each slice in one of so many partitions."""
    files = outputs.files()
    route = RouteJob(outputs, files, begun.publication.slices, begun.waiting)
    places = spark.range(0, len(files), 1, max(1, min(len(files), tasks)))
    routed = places.mapInArrow(route.run, ROUTED)
    # A slice without outputs is to be marked as out too.
    numbers = spark.range(begun.publication.slices).select(sf.col("id").cast("int").alias("slice"))
    numbers = numbers.where(sf.col("slice").isin(begun.waiting))
    return routed.unionByName(numbers, allowMissingColumns=True).repartition(tasks, "slice")


def _sent(routed: DataFrame, job: SendJob) -> list[dict[str, Any]]:
    """Return what each task has sent. Raises `TargetError` when one was stopped; the others go on to their ends."""
    with failing_as(TargetError):
        rows: list[dict[str, Any]] = routed.mapInArrow(job.run, SENT).toArrow().to_pylist()
    for row in rows:
        if row["error"] is not None:
            raise TargetError(row["error"])
    return rows


def _showing(begun: Begun, show: Show | None) -> ShowDone | None:
    """Return what shows how many outputs are sent, with those of the slices that are sent already."""
    if show is None:
        return None
    before = sum(each.position for each in begun.found.values() if each.is_sent)
    return lambda done: show(before + done.messages, done.of)
