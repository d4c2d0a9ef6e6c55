"""Truncation: every stream of a table, cut by the same rules or by the policies, on all workers of a Spark session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from eventstore import KeyRange, Table
from eventstore.connect import portable_url
from eventstore.listing import count_and_split
from runtime.algorithms.state_based.truncation_rules import MINIMUM_AGE, TruncationRules
from runtime.archives.versions import prepare_parts
from runtime.batches.ledger import Ledger
from runtime.batches.open_batches import OpenBatches
from runtime.cleanup.policies import NO_RULES, Policies, Scope
from runtime.clock import Clock, system_clock
from runtime.errors import BatchFailedError, LeaseLostError, UsageError
from runtime.publishing.erasing import prune_publications
from runtime.spark.counts import Done, Extent, counted
from runtime.spark.holding import holding
from runtime.spark.sessions.failures import explain, is_of_spark
from runtime.spark.sessions.kinds import cores_of
from runtime.spark.sessions.progress import Show
from runtime.spark.sessions.settings import job_settings
from runtime.spark.truncation_job import REPORT, SUMS, Kind, TruncationJob
from runtime.spark.workers.connection import Connection, TablePlace, check_reach, open_table
from runtime.spark.workers.job import Wrap
from runtime.spark.workers.pace import Pace, PacedTable

_RANGES = StructType([StructField(name, StringType()) for name in ("prefix", "first", "before")])
_RANGES_OF_A_CORE = 4
_STREAMS_OF_A_RANGE = 2000
_OF_A_STREAM = (
    "stream",
    "versions",
    "runs",
    "rows",
    "bytes",
    "letters",
    "kept_from",
    "newest",
    "horizon",
    "held",
)


@dataclass(frozen=True, slots=True)
class TruncatedCount:
    """Streams of a handler that were cut by the same rules and are held by the same, and what was cut of them.

    `letters` were given up. `rules` says whose rules they were, and `held` what keeps more of the streams: see
    `truncation_job.Kind`.
    """

    handler: str
    rules: str | None
    held: str | None
    streams: int
    cut: int
    versions: int
    runs: int
    rows: int
    bytes: int
    letters: int = 0


@dataclass(frozen=True, slots=True)
class Truncation:
    """What was cut of a table, or would be, and how many requests that took.

    `streams` has, where a report was asked for, a row for each stream that was cut or held.
    """

    counts: list[TruncatedCount]
    requests: int
    streams: DataFrame | None = None


@dataclass(frozen=True, kw_only=True)
class TruncationOptions:
    """What is cut of a table, and how.

    A version goes only when every rule given lets it: `older_than` (microseconds), `keep_last` (versions of each
    stream). It never goes when its batch is not published or abandoned, when it is in the newest run of its stream,
    or, without `allow_young`, within a day; nor when it is of a single message whose outputs may be unpublished, unless
    the caller promises that messages handled `acknowledged_after` (microseconds) ago were acknowledged; nor when a
    letter waits that is not newer, unless letters are given up that were refused `give_up_letters_older_than`
    (microseconds) ago. `redelivery_window` (microseconds) is added to the horizon for logs whose broker stamps each
    copy anew. Without any rule the policies of the table are applied; a stream that they hold is never cut. With
    `dry_run` nothing is written.

    One at a time cleans a table up: this holds its lease, with `take_over` also when somebody else does. With
    `max_requests_per_second` all workers together make no more. `report` is a folder to which a row is written for each
    stream that was cut or is held. `export` is a folder that driver and workers see: versions are written to files
    there, and cut once these were read back (`runtime.archives.versions`). `show` is called with the number of streams
    that are done, and of all.
    """

    older_than: int | None = None
    keep_last: int | None = None
    redelivery_window: int = 0
    allow_undated: bool = False
    allow_young: bool = False
    acknowledged_after: int | None = None
    give_up_letters_older_than: int | None = None
    dry_run: bool = False
    take_over: bool = False
    max_requests_per_second: float | None = None
    report: Path | str | None = None
    export: Path | str | None = None
    show: Show | None = None
    clock: Clock = system_clock
    wrap: Wrap | None = None

    @property
    def is_given(self) -> bool:
        """Whether any rule is given, so that the policies of the table do not count."""
        ages = (self.older_than, self.keep_last)
        flags = (self.redelivery_window, self.allow_undated, self.allow_young)
        return any(flags) or any(each is not None for each in ages)

    def rules(self, now: int, open_batches: OpenBatches) -> TruncationRules | None:
        """Return the rules that are given, None when there are none. Raises `UsageError` for what makes no sense."""
        if not self.is_given:
            return None
        return TruncationRules.of(
            now,
            open_batches,
            older_than=self.older_than,
            keep_last=self.keep_last,
            redelivery_window=self.redelivery_window,
            allow_undated=self.allow_undated,
            allow_young=self.allow_young,
        )


def truncate(
    spark: SparkSession,
    *,
    store: str,
    table: str,
    **options: Any,  # noqa: ANN401 - the fields of TruncationOptions
) -> Truncation:
    """Cut old versions of all state streams of a table, and return what was cut.

    `options` are the fields of `TruncationOptions`.

    Raises `UsageError` for rules that make no sense, or no rules and no policies, `LeaseHeldError`, `LeaseLostError`
    when the lease was taken over meanwhile, `TableNotFoundError` when there is no such table, and `BatchFailedError`
    when the job failed: run it again.
    """
    chosen = TruncationOptions(**options)
    chosen.rules(chosen.clock(), OpenBatches())  # what cannot be is refused before the table is looked for
    connection = open_table(store, table, make=False)
    check_reach(connection, spark)
    return _Truncating(spark, TablePlace(store, table), chosen, connection).run()


class _Truncating:
    """A truncation under way: the requests of its driver are counted and paced like those of the workers."""

    def __init__(
        self, spark: SparkSession, place: TablePlace, options: TruncationOptions, connection: Connection
    ) -> None:
        self._spark = spark
        self._place = place
        self._options = options
        self._connection = connection
        pace = options.max_requests_per_second
        self._table = PacedTable(connection.table, Pace(pace) if pace else None)
        self._ledger = Ledger(self._table, options.clock)
        self._parallel = cores_of(spark)

    def run(self) -> Truncation:
        """Cut the streams, prune the ledger, and return what was cut."""
        options, now = self._options, self._options.clock()
        has_policies = Policies(self._table, options.clock).has_rules
        if not options.is_given and not self._connection.run(has_policies()):
            raise UsageError(NO_RULES)
        with ExitStack() as stack:
            stack.enter_context(job_settings(self._spark))
            job = self._job(now)
            if not options.dry_run:
                job = self._hold(job, stack)
            truncation = self._cut(job, stack)
            self._prune(now)
        return replace(truncation, requests=truncation.requests + self._table.calls)

    def _job(self, now: int) -> TruncationJob:
        options = self._options
        open_batches = self._connection.run(self._ledger.open_batches())
        return TruncationJob(
            store=portable_url(self._place.store),
            table=self._place.table,
            given=options.rules(now, open_batches),
            now=now,
            open_batches=open_batches,
            acknowledged=_ago(now, options.acknowledged_after),
            give_up=_ago(now, options.give_up_letters_older_than),
            dry_run=options.dry_run,
            clock=options.clock,
            with_streams=options.report is not None,
            export=None if options.export is None else str(Path(options.export).absolute()),
            wrap=options.wrap,
        )

    def _hold(self, job: TruncationJob, stack: ExitStack) -> TruncationJob:
        """Hold the lease of the table, and make the folder of the export."""
        options = self._options
        lease = holding(self._place, options.clock, take_over=options.take_over)
        job = replace(job, token=stack.enter_context(lease))
        if job.export is not None:
            prepare_parts(Path(job.export))
        return job

    def _cut(self, job: TruncationJob, stack: ExitStack) -> Truncation:
        """Have the workers cut the streams, range by range."""
        options = self._options
        ranges_wanted = _RANGES_OF_A_CORE * self._parallel
        total, ranges = self._connection.run(count_and_split(self._table, ranges_wanted, _STREAMS_OF_A_RANGE))
        if options.max_requests_per_second:
            workers = min(len(ranges), self._parallel)
            job = replace(job, requests_per_second=options.max_requests_per_second / workers)
        show = options.show and partial(_show_streams, options.show)
        job = replace(job, counts=stack.enter_context(counted(self._spark, Extent(streams=total), show)))
        try:
            return _run(self._spark, job, ranges, None if options.report is None else str(options.report))
        except Exception as error:
            if not is_of_spark(error):
                raise
            lost = LeaseLostError.__name__ in str(error)
            raise (LeaseLostError if lost else BatchFailedError)(explain(error)) from error

    def _prune(self, now: int) -> None:
        """Delete the rows of batches, and of their publications, by the age that is given or the table's own policy."""
        options = self._options
        age = options.older_than
        if not options.is_given:
            age = self._connection.run(_age_of_table(self._table, options.clock))
        if age is not None and not options.dry_run:
            self._connection.run(self._ledger.prune(now - max(age, MINIMUM_AGE)))
            self._connection.run(prune_publications(self._table, options.clock))


def _show_streams(show: Show, done: Done) -> None:
    show(done.streams, done.of_streams or 0)


def _ago(now: int, age: int | None) -> int | None:
    return None if age is None else now - age


async def _age_of_table(table: Table, clock: Clock) -> int | None:
    """Return the age in the table's own policy: rows of batches are no stream's, and go by that."""
    policy = await Policies(table, clock).get(Scope())
    return policy.rules.older_than if policy.rules and not policy.hold else None


def _run(spark: SparkSession, job: TruncationJob, ranges: list[KeyRange], report: str | None) -> Truncation:
    frame = spark.createDataFrame([astuple(keys) for keys in ranges], _RANGES).repartition(len(ranges))
    cut = frame.mapInArrow(job.run, REPORT)
    if report is None:
        # Collected, not grouped: Spark would carry a lost part of the job out again, when all was cut.
        return _sum(row.asDict() for row in cut.select(*Kind._fields, *SUMS).collect())
    cut.write.parquet(report)
    written = spark.read.schema(REPORT).parquet(report)
    sums = written.groupBy(*Kind._fields).agg(*[sf.sum(name).alias(name) for name in SUMS])
    streams = written.where(sf.col("stream").isNotNull()).select(*_OF_A_STREAM)
    return replace(_sum(row.asDict() for row in sums.collect()), streams=streams)


def _sum(rows: Iterable[Mapping[str, Any]]) -> Truncation:
    sums: dict[Kind, dict[str, int]] = defaultdict(lambda: dict.fromkeys(SUMS, 0))
    for row in rows:
        kind = sums[Kind(*(row[name] for name in Kind._fields))]
        for name in SUMS:
            kind[name] += row[name]
    requests = sum(each.pop("requests") for each in sums.values())
    return Truncation(sorted(_counts(sums), key=_place), requests)


def _counts(sums: Mapping[Kind, Mapping[str, int]]) -> Iterator[TruncatedCount]:
    for kind, each in sums.items():
        if each["streams"]:
            yield TruncatedCount(kind.handler, kind.rules, kind.held, **each)


def _place(count: TruncatedCount) -> tuple[str, str, str]:
    return count.handler, count.rules or "", count.held or ""
