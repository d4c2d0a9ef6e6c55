"""Publishing on Spark: the slices of a batch are distributed over tasks, each of which sends some as a whole.

What is published, and what a target promises, is the same as without Spark, and so are the records in the table of the
batch: either goes on where the other was stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from eventstore import connect
from runtime.batch_options import TablePlace, Wrap
from runtime.clock import Clock, system_clock
from runtime.errors import TargetError
from runtime.ledger.ledger import Ledger
from runtime.publishing.outputs import BatchOutputs, OutcomeFile, Slices, cut, slice_numbers
from runtime.publishing.publisher import PublishOptions, Target, TargetOptions
from runtime.publishing.records import Publication, Publications
from runtime.publishing.runner import Begun, Published, Runner, Tally, begin
from runtime.publishing.targets.choice import open_target
from runtime.publishing.targets.sql import SqliteTarget
from runtime.spark.commit import absolute_folder
from runtime.spark.preflight import Probe, check_workers
from runtime.spark.schemas import OUTPUT
from runtime.spark.session import cores_of, failing_as, job_settings, master_of
from runtime.spark.worker.connection import check_reach, check_scope, open_table

# What the workers of a publication do: route outputs to slices, and send the slices that come to a task.
#
# A task has some slices as a whole, and sends them as a runner of its own does: under a claim for each. So
# a task that is run again, or twice at the same time, waits for the claims of the other attempt, and goes
# on with what is not sent.

OpenTarget = Callable[[], Target]

_SLICE = "slice"
ROUTED = StructType(
    [
        StructField(_SLICE, IntegerType()),
        *OUTPUT.fields,
        StructField("business_id", StringType()),
        StructField("handler", StringType()),
    ]
)
"""Outputs, each with the number of its slice. A row with a number alone says that there is the slice."""

SENT = StructType(
    [
        StructField("slices", LongType()),
        StructField("outputs", LongType()),
        StructField("error", StringType()),
    ]
)
"""What a task has sent, and what stopped it, if anything did."""


@dataclass(frozen=True)
class RouteJob:
    """Reads some of the files of a batch, and gives their outputs with the numbers of their slices."""

    outputs: BatchOutputs = field(repr=False)
    files: Sequence[OutcomeFile] = field(repr=False)
    count: int
    waiting: Sequence[int]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the files whose places in the list come in; leave out what is in slices that are sent."""
        places = (place for batch in batches for place in batch["id"].to_pylist())
        wanted = pa.array(self.waiting, pa.int32())
        for table in self.outputs.tables(self.files[place] for place in places):
            routed = table.append_column(_SLICE, slice_numbers(table, self.count))
            routed = routed.filter(pc.is_in(routed[_SLICE], value_set=wanted))
            yield from routed.select(ROUTED.fieldNames()).to_batches()


@dataclass(frozen=True)
class SendJob:
    """All that a worker needs to send slices. `dead` are tokens of claims that are not waited for."""

    place: TablePlace = field(repr=False)
    open_target: OpenTarget = field(repr=False)
    publication: Publication
    options: PublishOptions
    dead: frozenset[str]
    clock: Clock = system_clock
    wrap: Wrap | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send the slices whose outputs come in, and give a row of `SENT`."""
        numbers: set[int] = set()
        with cut(_outputs(batches, numbers), self.publication.slices) as found:
            if numbers:
                row = asyncio.run(self._send(replace(found, numbers=sorted(numbers))))
                yield pa.RecordBatch.from_pylist([row], _ARROW_SENT)

    async def _send(self, mine: Slices) -> dict[str, object]:
        async with connect(self.place.store) as store:
            table = await store.table(self.place.table, make=False)
            runner = Runner(
                self.wrap(table) if self.wrap else table,
                self.publication,
                mine,
                self.open_target(),
                options=self.options,
                tally=Tally(None, None),
                clock=self.clock,
            )
            error = None
            try:
                await runner.run(self.dead)
            except TargetError as stopped:  # which Spark would try again, as often as a target was by now
                error = str(stopped)
        return {"slices": runner.slices, "outputs": runner.outputs, "error": error}


_ARROW_SENT = pa.schema([("slices", pa.int64()), ("outputs", pa.int64()), ("error", pa.string())])


def _outputs(batches: Iterable[pa.RecordBatch], numbers: set[int]) -> Iterator[pa.Table]:
    """Give the outputs that come in, and add the numbers of all slices that do."""
    for batch in batches:
        numbers.update(pc.unique(batch[_SLICE]).to_pylist())
        outputs = pa.Table.from_batches([batch]).drop_columns([_SLICE])
        outputs = outputs.filter(pc.is_valid(outputs["message_id"]))
        if outputs.num_rows:
            yield outputs


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
        with job_settings(spark):
            check_workers(spark, Probe(job.open_target, job.place, None))
            rows = _sent(_routed(spark, begun.outputs, begun, tasks), job)
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
