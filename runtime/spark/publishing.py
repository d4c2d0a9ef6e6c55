"""Publish on Spark: tasks send the slices of a batch.

Guarantees and records are the same as without Spark. A publication can be continued with or without Spark. A retried or
speculative task waits for the slices claimed by the other attempt, and sends the rest.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from eventstore import connect
from eventstore.connect import portable_url
from runtime.batch_options import TablePlace, Wrap
from runtime.clock import Clock, system_clock
from runtime.errors import TargetError
from runtime.ledger.ledger import Ledger
from runtime.options import resolved
from runtime.publishing.outputs import COMMITTED, BatchOutputs, FileLocation, Slices, cut, slice_numbers
from runtime.publishing.publisher import PublishOptions, Target, TargetOptions
from runtime.publishing.records import Publication, Publications
from runtime.publishing.runner import PublishResult, Runner, begin
from runtime.publishing.targets.choice import open_target
from runtime.publishing.targets.sql import SqliteTarget
from runtime.spark.commit import absolute_folder
from runtime.spark.session import check_workers, cores_of, failing_as, job_settings, master_of
from runtime.spark.worker.connection import check_scope, open_current, reach

MakeTarget = Callable[[TargetOptions], Target]

_SLICE = "slice"
ROUTED = from_arrow_schema(pa.schema([(_SLICE, pa.int32()), *COMMITTED]))
"""Outputs with slice numbers. A row with only a number stands for a slice that may be empty."""

_TEXT, _NUMBER = pa.string(), pa.int64()
_SENT = pa.schema(
    [("slices", _NUMBER), ("outputs", _NUMBER), ("skipped", pa.map_(_TEXT, _NUMBER)), ("error", _TEXT)]
)
"""The result of a task: see `PublishResult`, and the error that stopped it."""


@dataclass(frozen=True)
class RouteJob:
    """Reads outcome files, and yields the outputs with their slice numbers."""

    outputs: BatchOutputs = field(repr=False)
    files: Sequence[FileLocation] = field(repr=False)
    count: int
    waiting: Sequence[int]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the outputs of files, except those of sent slices. `batches`: the positions of the files in `files`."""
        positions = (position for batch in batches for position in batch["id"].to_pylist())
        wanted = pa.array(self.waiting, pa.int32())
        for table in self.outputs.tables(self.files[position] for position in positions):
            routed = table.append_column(_SLICE, slice_numbers(table, self.count))
            routed = routed.filter(pc.is_in(routed[_SLICE], value_set=wanted))
            yield from routed.select(ROUTED.fieldNames()).to_batches()


@dataclass(frozen=True)
class SendJob:
    """Sends slices of a publication to its target, on a worker."""

    place: TablePlace = field(repr=False)
    open_target: Callable[[], Target] = field(repr=False)
    publication: Publication
    options: PublishOptions
    dead: frozenset[str]  # tokens of claims that need not expire first
    clock: Clock = system_clock
    wrap: Wrap | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send the outputs in `batches` by slice. Yield one row of `_SENT`: the counts, and any error."""
        numbers: set[int] = set()

        def outputs() -> Iterator[pa.Table]:
            for batch in batches:
                numbers.update(pc.unique(batch[_SLICE]).to_pylist())
                found = pa.Table.from_batches([batch]).drop_columns([_SLICE])
                found = found.filter(pc.is_valid(found["message_id"]))
                if found.num_rows:
                    yield found

        with cut(outputs(), self.publication.slices) as slices:
            if numbers:
                row = asyncio.run(self._send(replace(slices, numbers=sorted(numbers))))
                yield pa.RecordBatch.from_pylist([row], _SENT)

    async def _send(self, mine: Slices) -> dict[str, object]:
        async with connect(self.place.store) as store:
            table = await store.table(self.place.table, make=False)
            watched, target = self.wrap(table) if self.wrap else table, self.open_target()
            runner = Runner(watched, self.publication, mine, target, options=self.options, clock=self.clock)
            error = None
            try:
                await runner.run(self.dead)
            except TargetError as stopped:  # if it propagated, Spark would retry the task
                error = str(stopped)
        skipped = [*runner.skipped.items()]
        return {"slices": runner.slices, "outputs": runner.outputs, "skipped": skipped, "error": error}


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
) -> PublishResult:
    """Publish the unpublished slices of a batch on all workers of a session.

    `to`: the URL of a target, or a function of `TargetOptions` that opens it on each worker. `out`: the folder of the
    outcomes, if not the recorded folder. Each task sends `options.concurrency` slices at once, and all tasks share the
    target's rate limit. `wrap` is applied to each worker's table. Costs as much as `runtime.publishing.runner.publish`,
    and a shuffle of the outputs.

    Raises `BatchRefusedError` for an unfinished batch, `UsageError` for an invalid target or options, and `TargetError`
    if not all slices were sent. Call it again to continue.
    """
    options, of_target = options or PublishOptions(), target or TargetOptions(batch_id=batch_id)
    keys, keys_table = (of_target.keys, of_target.keys_table) if of_target.keys else (store, table)
    of_target = replace(of_target, keys=portable_url(keys), keys_table=keys_table)
    make = _maker(to)
    opened = make(of_target)
    table, connection = open_current(store, table, make=False, spark=spark)
    place = TablePlace(store, table)
    if isinstance(opened, SqliteTarget):
        check_scope("machine", master_of(spark))
    record = connection.run(Ledger(connection.table, clock).get(batch_id))
    folder = absolute_folder(out or record.out)
    progress = connection.run(begin(connection.table, record, folder, opened, options=options, clock=clock))
    slices, outputs, skipped = 0, 0, Counter[str]()
    if progress.outputs is not None:
        tasks = min(cores_of(spark), len(progress.waiting), opened.publishers or len(progress.waiting))
        shared = replace(of_target, rate=of_target.rate / tasks if of_target.rate else None)
        opening, dead = partial(make, shared), progress.taken_over(options)
        job = SendJob(place.for_workers(), opening, progress.publication, options, dead, clock, wrap)
        files, count = progress.outputs.files(), progress.publication.slices
        route = RouteJob(progress.outputs, files, count, progress.waiting)
        with job_settings(spark):
            check_workers(spark, partial(reach, job.open_target, job.place))
            positions = spark.range(0, len(files), 1, max(1, min(len(files), tasks)))
            routed = positions.mapInArrow(route.run, ROUTED)
            # Empty slices are marked as sent too.
            numbers = spark.range(count).select(sf.col("id").cast("int").alias(_SLICE))
            numbers = numbers.where(sf.col(_SLICE).isin(progress.waiting))
            routed = routed.unionByName(numbers, allowMissingColumns=True).repartition(tasks, _SLICE)
            with failing_as(TargetError):
                rows = routed.mapInArrow(job.run, from_arrow_schema(_SENT)).toArrow().to_pylist()
        for row in rows:
            if row["error"] is not None:
                raise TargetError(row["error"])
            skipped.update(dict(row["skipped"]))
        slices, outputs = (sum(row[name] for row in rows) for name in ("slices", "outputs"))
    records = connection.run(Publications(connection.table, clock).records(progress.publication))
    return PublishResult(progress.publication, slices, outputs, records, skipped)


@dataclass(frozen=True)
class PublishTo:
    """The target to which each epoch of a stream is published, with its options; see `publish`."""

    to: str | MakeTarget = field(repr=False)
    target: TargetOptions = field(default_factory=TargetOptions)
    options: PublishOptions = field(default_factory=PublishOptions)

    def __post_init__(self) -> None:
        # Resolved now, because working directory and environment may change later.
        object.__setattr__(self, "to", _maker(self.to))
        keys = self.target.keys
        object.__setattr__(self, "target", replace(self.target, keys=keys and portable_url(keys)))

    def check(self) -> None:
        """Raise `UsageError` for an invalid target."""
        _maker(self.to)(self.target)

    def publish(self, place: TablePlace, spark: SparkSession, batch_id: str, out: str) -> PublishResult:
        target, options = replace(self.target, batch_id=batch_id), replace(self.options, any_types=True)
        to, (store, table) = self.to, (place.store, place.table)
        return publish(spark, batch_id, to, store=store, table=table, out=out, target=target, options=options)


def _maker(to: str | MakeTarget) -> MakeTarget:
    return partial(open_target, portable_url(resolved(to))) if isinstance(to, str) else to
