"""Verification: replay a log with today's handlers against the stored versions, and write nothing.

It shows before handlers are deployed which stored versions they would break. It reads the log and the streams that the
log names, and creates neither a table, nor a row in the ledger, nor a folder.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from eventstore.connect import portable_url
from handlers import App
from runtime.algorithms.state_based.verification import Verdict
from runtime.archives.versions import ExportedVersions
from runtime.batches.ledger import Ledger
from runtime.batches.record import STATE_BASED
from runtime.batches.settings import TableSettings
from runtime.clock import system_clock
from runtime.errors import BatchFailedError, LogError, UsageError
from runtime.messages.dead_letters import VARYING
from runtime.messages.limits import USUAL, MessageLimits
from runtime.spark.beginning import Probe, check_workers
from runtime.spark.counts import Extent, ShowDone, counted
from runtime.spark.logs.log import normalise
from runtime.spark.logs.reading import Log, open_log
from runtime.spark.logs.routing import Sample, route
from runtime.spark.schemas import FOUND
from runtime.spark.sessions.failures import failing_as
from runtime.spark.sessions.kinds import cores_of
from runtime.spark.sessions.settings import job_settings
from runtime.spark.verify_job import VerifyJob
from runtime.spark.workers.connection import Connection, TablePlace, check_reach, open_table
from runtime.spark.workers.job import Wrap

_KIND = ("handler", "type", "revision", "verdict")
_DIFFERING = [verdict.value for verdict in Verdict if verdict.is_difference]

_numbers = itertools.count(1)


def _silent(_: str) -> None: ...


@dataclass(frozen=True)
class VerifyOptions:
    """How a log is verified.

    `sample` takes a share of all streams, chosen by a hash of handler, business id and `seed`: the same ones in every
    run. With `cascade` the outputs of the replays are verified too, round by round. `source`, `partitions` and
    `in_flight` are those of a batch. `export` is a folder that driver and workers see, with versions that truncation
    has cut: these are compared too. `step` is called with a sentence when the work goes on to its next step, and
    `progress` as that of a batch; for it, the messages of a log that is verified whole are counted beforehand.
    """

    sample: float = 1.0
    seed: int = 0
    cascade: bool = False
    max_rounds: int = 100
    source: str | None = None
    limits: MessageLimits = USUAL
    log_format: str | None = None
    partitions: int | None = None
    in_flight: int = 32
    wrap: Wrap | None = None
    export: str | None = None
    step: Callable[[str], None] = _silent
    progress: ShowDone | None = None

    def __post_init__(self) -> None:
        if not 0 < self.sample <= 1:
            message = f"A sample is a share of the streams, above 0 and up to 1, not {self.sample}."
            raise UsageError(message)
        if self.export is not None:
            ExportedVersions(Path(self.export))  # raises when there are no versions


@dataclass(frozen=True, slots=True)
class VerdictCount:
    """How many deliveries of a kind have the same verdict, in how many streams, with an example.

    `reasons` are the errors of deliveries that have no version, each with the number of those with an error like it.
    """

    handler: str | None
    type: str | None
    revision: int | None
    verdict: Verdict
    deliveries: int
    streams: int
    message_id: str | None
    error: str | None
    reasons: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first version of a stream that differs in some way, and how; `changes` are fields of the next state."""

    handler: str
    business_id: str
    version: int
    message_id: str | None
    type: str | None
    revision: int | None
    verdict: Verdict
    error: str
    changes: Sequence[dict[str, Any]]
    deliveries: int


@dataclass(frozen=True)
class Verification:
    """What was found: counts by kind, and a DataFrame with a row for each stream and kind of difference."""

    counts: Sequence[VerdictCount]
    differences: DataFrame

    @property
    def is_clean(self) -> bool:
        """Whether the replays of all stored versions match what was recorded."""
        return not any(count.verdict.is_difference for count in self.counts)

    @property
    def deliveries(self) -> int:
        """How many deliveries were verified, counted once for each handler that takes them."""
        return sum(count.deliveries for count in self.counts)

    def first_differences(self, limit: int = 0) -> list[FirstDifference]:
        """Return differences, the first of every kind before the second of any; `limit` 0 returns all."""
        ordered = Window.partitionBy(*_KIND).orderBy("version", "business_id")
        ranked = self.differences.withColumn("rank", sf.row_number().over(ordered)).orderBy(
            "rank", *_KIND, "version", "business_id"
        )
        rows = (ranked.limit(limit) if limit else ranked).collect()
        names = ("handler", "business_id", "version", "message_id", "type", "revision")
        return [
            FirstDifference(
                **{name: row[name] for name in names},
                verdict=Verdict(row["verdict"]),
                error=row["error"],
                changes=json.loads(row["changes"] or "[]"),
                deliveries=row["deliveries"],
            )
            for row in rows
        ]


def verify(
    spark: SparkSession,
    messages: Log,
    app: App,
    *,
    store: str,
    table: str,
    **options: Any,  # noqa: ANN401 - the fields of VerifyOptions
) -> Verification:
    """Replay a log against its stored versions with today's code, and return what differs. Writes nothing.

    `messages` is the path of a log, or a DataFrame with its columns; `options` are the fields of `VerifyOptions`. The
    work is done when this returns. Costs one query for each stream, and more for versions that are no longer in its
    header.

    Raises `UsageError` for what cannot be verified, `ArchiveError` for an export without versions,
    `TableNotFoundError` when there is no such table, and `BatchFailedError` when the job stopped.
    """
    verifying = _Verifying(spark, app, portable_url(store), table, VerifyOptions(**options))
    with job_settings(spark, messages):
        return verifying.run(messages)


def _check_versions(connection: Connection) -> None:
    """Raise `UsageError` when batches kept no versions. Costs a request."""
    found = connection.run(Ledger(connection.table, system_clock).algorithm())
    if found is not None and found.name != STATE_BASED:
        message = (
            f"The table was processed with the algorithm {found.name} (batch {found.batch_id}), which keeps "
            f"no versions that could be compared: only state-based tables can be verified."
        )
        raise UsageError(message)


@dataclass
class _Verifying:
    spark: SparkSession
    app: App
    store: str = field(repr=False)
    table: str
    options: VerifyOptions

    def run(self, messages: Log) -> Verification:
        """Verify the log, and with `cascade` what its replays publish."""
        options = self.options
        given = open_log(self.spark, messages, options.log_format, options.step).rows
        log = normalise(given, options.source, options.limits)
        connection = open_table(self.store, self.table, make=False)
        check_reach(connection, self.spark)
        check_workers(self.spark, Probe(self.app, TablePlace(self.store, self.table), None))
        _check_versions(connection)
        self.app = self.app.keyed(connection.run(TableSettings.of(connection.table)).draw_key)
        sample = None if options.sample == 1 else Sample(options.sample, options.seed)
        rounds = [self._round(0, log, self._number_of(given), sample)]
        while options.cascade:
            outputs = self._outputs(rounds[-1])
            count = outputs.count()
            if not count:
                break
            if len(rounds) == options.max_rounds:
                message = (
                    f"The cascade has not ended after {len(rounds)} rounds: allow more with --max-rounds."
                )
                raise BatchFailedError(message)
            rounds.append(self._round(len(rounds), outputs, count))
        return self._result(rounds)

    def _number_of(self, log: DataFrame) -> int | None:
        """Return how many messages are verified, if that is to be shown; which are sampled, only workers see."""
        options = self.options
        if options.progress is None or options.sample < 1:
            return None
        options.step("Counting messages")
        with failing_as(LogError):
            return log.count()

    def _round(
        self, number: int, messages: DataFrame, count: int | None, sample: Sample | None = None
    ) -> DataFrame:
        """Return what is found of so many messages; it is computed once, and kept on Spark's own disk.

        Spark knows what it keeps by its plan. The job has a number of its own, or else a second verification of the
        same log would get what the first one found.
        """
        options = self.options
        options.step(f"Round {number}: handling messages again")
        job = VerifyJob(
            self.app,
            self.store,
            self.table,
            options.in_flight,
            options.cascade,
            options.wrap,
            number=next(_numbers),
            export=None if options.export is None else str(Path(options.export).absolute()),
            limits=options.limits,
        )
        partitions = options.partitions or max(2, 2 * cores_of(self.spark))
        routed = route(messages, self.app, partitions, sample)
        with failing_as(BatchFailedError), counted(self.spark, Extent(count), options.progress) as counts:
            found = routed.mapInArrow(replace(job, counts=counts).verify, FOUND)
            found.persist(StorageLevel.DISK_ONLY).count()
        return found

    def _outputs(self, found: DataFrame) -> DataFrame:
        """Return what the matches of a round publish and a handler takes, as a log in its one form."""
        outputs = found.select(sf.explode("outputs").alias("output")).select("output.*")
        taken = outputs.where(sf.col("type").isin(list(self.app.message_types)))
        nothing = sf.lit(None).cast("string")
        return taken.withColumns(dict.fromkeys(("business_id", "handler", "problem", "line"), nothing))

    def _result(self, rounds: Sequence[DataFrame]) -> Verification:
        self.options.step("Counting what was found")
        found = reduce(DataFrame.unionByName, rounds).where(sf.col("verdict").isNotNull())
        counts = _count(found)
        if not counts:
            message = "The log holds no messages: there is nothing to verify."
            if self.options.sample < 1:
                message = "The log holds no messages of the sampled streams: take a larger sample."
            raise LogError(message)
        return Verification(counts, _first_of_each_stream(found.where(sf.col("verdict").isin(_DIFFERING))))


def _first_of_each_stream(found: DataFrame) -> DataFrame:
    """Return a row for each stream and kind; a stream that is very long was verified in several groups."""
    first = sf.min_by(sf.struct("version", "message_id", "error", "changes"), "version").alias("first")
    grouped = found.groupBy(*_KIND, "business_id").agg(first, sf.sum("deliveries").alias("deliveries"))
    return grouped.select(*_KIND, "business_id", "first.*", "deliveries")


def _count(found: DataFrame) -> list[VerdictCount]:
    example = sf.min(sf.struct("message_id", "error")).alias("example")
    sums = [sf.sum(name).alias(name) for name in ("deliveries", "streams")]
    rows = found.groupBy(*_KIND).agg(*sums, example).collect()
    reasons = _reasons(found) if any(row["verdict"] == Verdict.UNKNOWN for row in rows) else {}
    counts = [
        VerdictCount(
            row["handler"],
            row["type"],
            row["revision"],
            Verdict(row["verdict"]),
            row["deliveries"],
            row["streams"],
            row["example"]["message_id"],
            row["example"]["error"],
            reasons.get(tuple(row[name] for name in _KIND), ()),
        )
        for row in rows
    ]
    return sorted(counts, key=_place)


def _reasons(found: DataFrame) -> dict[tuple[Any, ...], list[tuple[str, int]]]:
    """Return the errors of deliveries without a version by kind, the most frequent first."""
    unknown = found.where((sf.col("verdict") == Verdict.UNKNOWN.value) & sf.col("error").isNotNull())
    alike = sf.regexp_replace("error", VARYING, "").alias("alike")
    counted = unknown.groupBy(*_KIND, alike).agg(
        sf.min("error").alias("error"), sf.sum("deliveries").alias("count")
    )
    reasons: dict[tuple[Any, ...], list[tuple[str, int]]] = {}
    for row in counted.orderBy(sf.desc("count"), "error").collect():
        reasons.setdefault(tuple(row[name] for name in _KIND), []).append((row["error"], row["count"]))
    return reasons


def _place(count: VerdictCount) -> tuple[str, str, int, int]:
    """Return by what counts are ordered: matches first, what has no handler last."""
    return count.handler or "~", count.type or "", list(Verdict).index(count.verdict), count.revision or 0
