"""Verification: replay a log with today's handlers against the stored versions, and write nothing.

It shows before handlers are deployed which stored versions they would break. It reads the log and the streams that the
log names, and creates neither a table, nor a row in the ledger, nor a folder.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from eventstore import Table
from eventstore.connect import portable_url
from handlers import App
from runtime.algorithms.state_based.verification import Finding, Verdict, Verifier
from runtime.archives.versions import ExportedVersions
from runtime.batch_options import TablePlace, VerifyOptions, Wrap
from runtime.clock import system_clock
from runtime.errors import BatchFailedError, LogError, StoredDataError, UsageError
from runtime.ledger.ledger import STATE_BASED, Ledger
from runtime.ledger.settings import TableSettings
from runtime.messages.limits import USUAL, MessageLimits
from runtime.messages.outcome import VARYING, Outcome, Outputs, without_values
from runtime.messages.parsing import Delivery, prepare_all, unroutable
from runtime.retries import RetryPolicy
from runtime.spark.logs.normalise import normalise
from runtime.spark.logs.read import Log, open_log
from runtime.spark.logs.route import Sample, route
from runtime.spark.preflight import Probe, check_workers
from runtime.spark.schemas import FOUND
from runtime.spark.session import cores_of, failing_as, job_settings
from runtime.spark.worker.connection import (
    Buffer,
    ConcurrencyLimit,
    Connection,
    Wait,
    check_reach,
    open_table,
)
from runtime.spark.worker.job import Group, groups, rare_collections
from runtime.spark.worker.outcomes import MAX_BYTES, outputs_array, outputs_bytes

# What the workers of a verification do: compare the deliveries of a partition, stream by stream, and add up.
#
# What matches is counted. Of what differs, each stream gives the first version for each kind of difference.

_MAX_ROWS = 4096
_MAX_COUNTS = 1024

_Kind = tuple[str | None, str | None, int | None, Verdict]


@dataclass(slots=True)
class _Stream:
    """What was found of one stream so far: kinds of findings, and the last message that gave its outputs."""

    kinds: set[_Kind] = field(default_factory=set)
    delivered: str | None = None


class _Checked(NamedTuple):
    """The findings on a group of deliveries."""

    stream: _Stream
    findings: Sequence[Finding]


@dataclass(slots=True)
class _Row:
    """Findings of one kind, with the first of them as the example."""

    first: Finding
    deliveries: int = 0
    streams: int = 0

    def add(self, finding: Finding, *, is_new: bool) -> None:
        self.deliveries += finding.message_id is not None
        self.streams += is_new
        if (finding.version or 0) < (self.first.version or 0):
            self.first = finding


@dataclass(frozen=True)
class VerifyJob:
    """All that a worker needs to verify a partition of deliveries. `with_outputs` also gives what matches publish.

    `export` is a folder with versions that were cut. `number` tells one verification from another that is equal.
    """

    app: App
    store: str = field(repr=False)
    table: str
    in_flight: int = 32
    with_outputs: bool = False
    wrap: Wrap | None = None
    number: int = 0
    export: str | None = None
    limits: MessageLimits = USUAL

    def verify(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compare the deliveries of a partition with their stored versions, and give rows of `FOUND`."""
        connection = open_table(self.store, self.table, make=False)
        concurrency = ConcurrencyLimit(self.in_flight)
        table = self.wrap(connection.table) if self.wrap else connection.table
        worker = _Worker(self, connection.measured(table, concurrency))
        tally = _Tally()
        with rare_collections():
            for checked in connection.run_all(worker.work(batches), concurrency):
                tally.add(checked)
                if tally.is_full:
                    yield tally.flush()
                del checked  # or it would be kept while the next group is verified
            yield tally.end()


class _Worker:
    """Verifies groups of deliveries, each with the code of its handler."""

    def __init__(self, job: VerifyJob, table: Table) -> None:
        self._app = job.app
        self._limits = job.limits
        self._buffer = Buffer()
        find_cut = None if job.export is None else ExportedVersions(Path(job.export)).find
        self._verifiers = {
            name: Verifier(table, handler, RetryPolicy(), with_outputs=job.with_outputs, find_cut=find_cut)
            for name, handler in job.app.handlers.items()
        }

    def work(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Coroutine[Any, Any, _Checked] | Wait]:
        """Give the work on each group."""
        stream = _Stream()
        for group in groups(batches):
            if not group.follows:
                stream = _Stream()
            yield from self._buffer.admit(group.size)
            yield self._check(group, stream)
            del group  # or it would be kept while the next one is read

    async def _check(self, group: Group, stream: _Stream) -> _Checked:
        findings = await self._findings(group)
        self._buffer.release(group.size)
        return _Checked(stream, findings)

    async def _findings(self, group: Group) -> Sequence[Finding]:
        handler = self._app.handlers.get(group.handler or "")
        if handler is None:
            rows = zip(group.envelopes, group.problems, strict=True)
            return [
                _without_stream(unroutable(envelope, why, group.handler), group.handler)
                for envelope, why in rows
            ]
        prepared = prepare_all(handler, group.business_id, group.envelopes, self._limits)
        if group.business_id is None:
            return [_without_stream(each, handler.name) for each in prepared]
        try:
            return await self._verifiers[handler.name].verify(group.business_id, prepared)
        except StoredDataError as error:
            verdict = Verdict.STREAM_DAMAGED
            return [Finding(handler.name, group.business_id, None, None, verdict, error=str(error))]


class _Tally:
    """Adds up findings, and collects rows for those that differ."""

    def __init__(self) -> None:
        self._counts: dict[tuple[_Kind, str], _Row] = {}
        self._rows: list[_Row] = []
        self._outputs = Outputs()
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to flush."""
        return len(self._rows) >= _MAX_ROWS or self._bytes >= MAX_BYTES

    def add(self, checked: _Checked) -> None:
        """Take the findings on a group."""
        stream = checked.stream
        differing: dict[tuple[_Kind, str], _Row] = {}
        for finding in checked.findings:
            kind = (finding.handler, finding.type, finding.revision, finding.verdict)
            rows = differing if finding.verdict.is_difference else self._counts
            row = rows.setdefault((kind, self._alike(finding)), _Row(finding))
            row.add(finding, is_new=kind not in stream.kinds)
            stream.kinds.add(kind)
            # Copies of a message stand together, and the first of them gives the outputs.
            if finding.outputs and finding.message_id != stream.delivered:
                stream.delivered = finding.message_id
                outputs = Outputs.of(finding.outputs)
                self._outputs.extend(outputs)
                self._bytes += outputs_bytes(outputs)
        self._rows += differing.values()

    def _alike(self, finding: Finding) -> str:
        """Return what the errors of deliveries without a version have in common that are counted together."""
        if finding.verdict is not Verdict.UNKNOWN or len(self._counts) >= _MAX_COUNTS:
            return ""
        return without_values(finding.error or "")

    def flush(self) -> pa.RecordBatch:
        """Return the rows so far, and begin anew."""
        batch = _to_arrow(self._rows, self._outputs)
        self._rows, self._outputs, self._bytes = [], Outputs(), 0
        return batch

    def end(self) -> pa.RecordBatch:
        """Return the last rows, with what was counted."""
        self._rows += self._counts.values()
        return self.flush()


def _to_arrow(rows: list[_Row], outputs: Outputs) -> pa.RecordBatch:
    """Return a row for each kind, and one more with outputs when there are any."""
    firsts: list[Finding | None] = [row.first for row in rows]
    counts = [(row.deliveries, row.streams) for row in rows]
    if outputs:
        firsts.append(None)
        counts.append((0, 0))
    texts = [
        pa.array([getattr(first, name, None) for first in firsts], pa.string())
        for name in ("handler", "type", "verdict", "business_id", "message_id", "error")
    ]
    numbers = [
        pa.array([getattr(first, name, None) for first in firsts], pa.int64())
        for name in ("revision", "version")
    ]
    columns = [
        *texts,
        *numbers,
        pa.array([_changes(first) for first in firsts], pa.string()),
        pa.array([deliveries for deliveries, _ in counts], pa.int64()),
        pa.array([streams for _, streams in counts], pa.int64()),
        outputs_array([len(outputs) if first is None else 0 for first in firsts], outputs),
    ]
    return pa.RecordBatch.from_arrays(columns, names=FOUND.fieldNames())


def _changes(first: Finding | None) -> str | None:
    if first is None or not first.changes:
        return None
    return json.dumps([asdict(change) for change in first.changes], ensure_ascii=False)


def _without_stream(delivery: Delivery, handler: str | None) -> Finding:
    envelope = delivery.envelope
    error = delivery.error if isinstance(delivery, Outcome) else None
    return Finding(handler, None, envelope.message_id or "", envelope.type, Verdict.UNKNOWN, error=error)


_KIND = ("handler", "type", "revision", "verdict")
_DIFFERING = [verdict.value for verdict in Verdict if verdict.is_difference]

_numbers = itertools.count(1)


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
    chosen = VerifyOptions(**options)
    if chosen.export is not None:
        ExportedVersions(Path(chosen.export))  # raises when there are no versions
    verifying = _Verifying(spark, app, portable_url(store), table, chosen)
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
        rounds = [self._round(0, log, sample)]
        while options.cascade:
            outputs = self._outputs(rounds[-1])
            if outputs.isEmpty():
                break
            if len(rounds) == options.max_rounds:
                message = (
                    f"The cascade has not ended after {len(rounds)} rounds: allow more with --max-rounds."
                )
                raise BatchFailedError(message)
            rounds.append(self._round(len(rounds), outputs))
        return self._result(rounds)

    def _round(self, number: int, messages: DataFrame, sample: Sample | None = None) -> DataFrame:
        """Return what is found of messages; it is computed once, and kept on Spark's own disk.

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
        with failing_as(BatchFailedError):
            found = routed.mapInArrow(job.verify, FOUND)
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
