"""Verification: replay a log with current handlers, and compare the results with the stored versions. Writes nothing.

It shows before deployment which stored versions new code would break.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from eventstore import KeyRange
from eventstore.keys import Shard
from eventstore.stream import split_keys
from handlers import App
from runtime.algorithms.state_based.replay import Finding, Verdict, Verifier
from runtime.archives.versions import ExportedVersions
from runtime.batch_options import TablePlace, VerifyOptions, check_app, remark
from runtime.clock import system_clock
from runtime.errors import BatchFailedError, LogError, StoredDataError, UsageError
from runtime.ledger.ledger import STATE_BASED, Ledger
from runtime.ledger.settings import TableSettings
from runtime.maintenance.statistics import object_keys
from runtime.messages.envelope import id_text
from runtime.messages.outcome import VARYING, Outputs, without_values
from runtime.messages.parsing import Deliveries
from runtime.options import given
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.spark.batch import published_outputs
from runtime.spark.logs.normalise import SHARES, Sample, find_routes, normalise, route
from runtime.spark.logs.read import Log, open_log
from runtime.spark.scan import RANGES_OF_A_CORE, Documents, Task, scanned
from runtime.spark.session import check_workers, cores_of, failing_as, job_settings
from runtime.spark.worker.connection import ConcurrencyLimit, Connection, open_current, open_table, reach
from runtime.spark.worker.job import Group, by_stream, groups, prepared, rare_collections
from runtime.spark.worker.outcomes import ARROW_OUTPUT, MAX_BYTES, outputs_array, outputs_bytes
from runtime.versions.properties import Damaged, collecting
from runtime.versions.stream import made_by, stream_keys

_TEXT, _NUMBER = pa.string(), pa.int64()
ARROW_FOUND = pa.schema(
    [
        *((name, _TEXT) for name in ("handler", "type", "verdict", "business_id", "message_id", "error")),
        *((name, _NUMBER) for name in ("revision", "version")),
        ("changes", _TEXT),
        *((name, _NUMBER) for name in ("deliveries", "streams")),
        ("outputs", pa.list_(ARROW_OUTPUT)),
    ]
)
"""Findings of one kind, with the first as example. A kind of difference has a row for each stream.

`changes` are the differing fields of the next state, as JSON. A row without a verdict only holds outputs.
"""

FOUND = from_arrow_schema(ARROW_FOUND)

_MAX_ROWS = 4096
_MAX_COUNTS = 1024
_KIND = ("handler", "type", "revision", "verdict")
_Kind = tuple[str | None, str | None, int | None, Verdict]

_numbers = itertools.count(1)

_IDS_AT_ONCE = 10_000
_STORED = "handler string, business_id string, first int, ids array<string>, error string"


@dataclass(frozen=True)
class VerifyJob:
    """Verifies a partition of deliveries."""

    app: App
    place: TablePlace = field(repr=False)
    options: VerifyOptions
    number: int = 0  # unique: Spark would reuse the persisted result of an equal plan

    def verify(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compare deliveries with their stored versions. Yield rows of `FOUND`."""
        options = self.options
        connection = open_table(self.place.store, self.place.table, make=False)
        concurrency = ConcurrencyLimit(options.in_flight)
        table = connection.measured(connection.table, concurrency, options.wrap)
        find_cut = None if options.export is None else ExportedVersions(Path(options.export)).find
        verifiers = {
            name: Verifier(table, handler, RetryPolicy(), with_outputs=options.cascade, find_cut=find_cut)
            for name, handler in self.app.handlers.items()
        }

        async def check(group: Group, stream: _Stream) -> tuple[_Stream, Sequence[Finding]]:
            handler, business_id = group.handler, group.business_id
            deliveries = prepared(group, self.app, options.limits)
            if not isinstance(deliveries, Deliveries):
                refused = [(each.envelope, each.error) for each in deliveries]
                return stream, [
                    Finding(handler, None, to.message_id or "", to.type, Verdict.UNKNOWN, error=error)
                    for to, error in refused
                ]
            try:
                return stream, await verifiers[str(handler)].verify(str(business_id), deliveries)
            except StoredDataError as error:
                verdict = Verdict.STREAM_DAMAGED
                return stream, [Finding(handler, business_id, None, None, verdict, error=str(error))]

        tally, work = _Tally(), by_stream(groups(batches), _Stream, check)
        with rare_collections():
            for stream, findings in connection.run_all(work, concurrency):
                tally.add(stream, findings)
                if tally.is_full:
                    yield tally.flush()
                del findings  # frees memory before the next group is verified
            yield tally.flush(at_end=True)


@dataclass(slots=True)
class _Stream:
    """The kinds of findings of one stream so far, and the id of the last message whose outputs were collected."""

    kinds: set[_Kind] = field(default_factory=set)
    delivered: str | None = None


@dataclass(slots=True)
class _Row:
    first: Finding
    deliveries: int = 0
    streams: int = 0


class _Tally:
    """Counts matches, and collects a row for each stream and kind of difference."""

    def __init__(self) -> None:
        self._counts: dict[tuple[_Kind, str], _Row] = {}
        self._rows: list[_Row] = []
        self._outputs = Outputs()
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self._rows) >= _MAX_ROWS or self._bytes >= MAX_BYTES

    def add(self, stream: _Stream, findings: Sequence[Finding]) -> None:
        differing: dict[tuple[_Kind, str], _Row] = {}
        for finding in findings:
            kind = (finding.handler, finding.type, finding.revision, finding.verdict)
            alike = ""
            if finding.verdict is Verdict.UNKNOWN and len(self._counts) < _MAX_COUNTS:
                alike = without_values(finding.error or "")
            rows = differing if finding.verdict.is_difference else self._counts
            row = rows.setdefault((kind, alike), _Row(finding))
            row.deliveries += finding.message_id is not None
            row.streams += kind not in stream.kinds
            if (finding.version or 0) < (row.first.version or 0):
                row.first = finding
            stream.kinds.add(kind)
            # Copies of a message are adjacent, and only the first may add outputs.
            if finding.outputs and finding.message_id != stream.delivered:
                stream.delivered = finding.message_id
                outputs = Outputs.of(finding.outputs)
                self._outputs.extend(outputs)
                self._bytes += outputs_bytes(outputs)
        self._rows += differing.values()

    def flush(self, *, at_end: bool = False) -> pa.RecordBatch:
        """Return the differences since the last flush. If `at_end` is set, also return the counts.

        If outputs were collected since the last flush, an extra last row contains them, and nothing else.
        """
        names, rows = ("business_id", "message_id", "error", "version", *_KIND), []
        for row in (*self._rows, *(self._counts.values() if at_end else ())):
            changes = [asdict(change) for change in row.first.changes]
            rows.append({name: getattr(row.first, name) for name in names})
            rows[-1] |= {"deliveries": row.deliveries, "streams": row.streams}
            rows[-1]["changes"] = json.dumps(changes, ensure_ascii=False) if changes else None
        counts = [0] * len(rows)
        if self._outputs:
            rows.append({})
            counts.append(len(self._outputs))
        *columns, _ = pa.RecordBatch.from_pylist(rows, ARROW_FOUND).columns
        batch = pa.RecordBatch.from_arrays(
            [*columns, outputs_array(counts, self._outputs)], schema=ARROW_FOUND
        )
        self._rows, self._outputs, self._bytes = [], Outputs(), 0
        return batch


@dataclass(frozen=True, slots=True)
class VerdictCount:
    """The numbers of deliveries and streams with the same handler, type, revision and verdict, and an example."""

    handler: str | None
    type: str | None
    revision: int | None
    verdict: Verdict
    deliveries: int
    streams: int
    message_id: str | None
    error: str | None
    reasons: Sequence[tuple[str, int]] = ()  # errors of deliveries without a version, with counts


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first version of a stream with one kind of difference. `changes`: the fields of its state that differ."""

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
    """The numbers of deliveries by verdict, and a DataFrame with a row for each stream and kind of difference."""

    counts: Sequence[VerdictCount]
    differences: DataFrame

    @property
    def is_clean(self) -> bool:
        """Whether all stored versions replay as recorded."""
        return not any(count.verdict.is_difference for count in self.counts)

    @property
    def deliveries(self) -> int:
        return sum(count.deliveries for count in self.counts)

    def first_differences(self, limit: int = 0) -> list[FirstDifference]:
        """Return up to `limit` differences (0: all). The first of every kind come before the second of any kind."""
        ordered = Window.partitionBy(*_KIND).orderBy("version", "business_id")
        ranked = self.differences.withColumn("rank", sf.row_number().over(ordered))
        ranked = ranked.orderBy("rank", *_KIND, "version", "business_id").drop("rank")
        differences = [row.asDict() for row in (ranked.limit(limit) if limit else ranked).collect()]
        return [
            FirstDifference(
                **row | {"verdict": Verdict(row["verdict"]), "changes": json.loads(row["changes"] or "[]")}
            )
            for row in differences
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
    """Replay a log with the current code, and compare the results with the stored versions. Writes nothing.

    `messages`: a log, see `run_batch`. `options`: the fields of `VerifyOptions`. Costs one query for each stream, and
    more for versions outside its header.

    Raises `UsageError` for invalid arguments, `ArchiveError` for an export without versions, `TableNotFoundError` for a
    missing table, and `BatchFailedError` if Spark fails.
    """
    check_app(app)
    chosen = given(VerifyOptions, options)
    if chosen.export is not None:
        ExportedVersions(Path(chosen.export))  # raises without versions
    with job_settings(spark, messages):
        say = partial(remark, chosen.step)
        opened = open_log(spark, messages, chosen.log_format, say, decoding=chosen.decoding)
        log = normalise(opened.rows, chosen.source, chosen.limits)
        table, connection = open_current(store, table, make=False, spark=spark)
        place = TablePlace(store, table).for_workers()
        check_workers(spark, partial(reach, app, place))
        algorithm = connection.run(Ledger(connection.table, system_clock).algorithm())
        if algorithm is not None and algorithm[0] != STATE_BASED:
            raise UsageError(
                f"The table was processed with the algorithm {algorithm[0]} (batch {algorithm[1]}), which stores no "
                f"versions to compare: only state-based tables can be verified."
            )
        settings = connection.run(TableSettings.of(connection.table))
        keyed = app.keyed(settings.draw_key)
        export = None if chosen.export is None else str(Path(chosen.export).absolute())
        job = VerifyJob(keyed, place, replace(chosen, export=export, step=VerifyOptions.step))
        logs, rounds = [log], [_found(log, job, 0, chosen)]
        while chosen.cascade:
            outputs = published_outputs(rounds[-1])
            outputs = outputs.where(sf.col("type").isin(list(app.message_types)))
            if outputs.isEmpty():
                break
            if len(rounds) == chosen.max_rounds:
                raise BatchFailedError(
                    f"The cascade has not ended after {len(rounds)} rounds: allow more with --max-rounds."
                )
            absent = ("business_id", "handler", "problem", "line")
            logs.append(outputs.withColumns(dict.fromkeys(absent, sf.lit(None).cast("string"))))
            rounds.append(_found(logs[-1], job, len(rounds), chosen))
        chosen.step("Counting what was found")
        verdicts = reduce(DataFrame.unionByName, rounds).where(sf.col("verdict").isNotNull())
        counts = _count(verdicts)
        owner, without_version = settings.owner, (Verdict.UNKNOWN, Verdict.NOT_KEPT)
        are_all_known = owner is not None and owner.handlers <= app.handlers.keys()
        if counts and (not are_all_known or any(each.verdict in without_version for each in counts)):
            chosen.step("Looking for streams that are lost")
            verdicts = verdicts.unionByName(_lost(logs, job, connection), allowMissingColumns=True)
            counts = _count(verdicts)
        if not counts and chosen.sample < 1:
            raise LogError("The log holds no messages of the sampled streams: take a larger sample.")
        if not counts:
            raise LogError("The log holds no messages: there is nothing to verify.")
        # A long stream was verified in several groups: combine their rows.
        differences = [each.value for each in Verdict if each.is_difference]
        differing = verdicts.where(sf.col("verdict").isin(differences))
        first = sf.min_by(sf.struct("version", "message_id", "error", "changes"), "version").alias("first")
        deliveries = sf.sum("deliveries").alias("deliveries")
        grouped = differing.groupBy(*_KIND, "business_id").agg(first, deliveries)
        return Verification(counts, grouped.select(*_KIND, "business_id", "first.*", "deliveries"))


def _found(messages: DataFrame, job: VerifyJob, number: int, options: VerifyOptions) -> DataFrame:
    options.step(f"Round {number}: handling messages again")
    spark = messages.sparkSession
    sample = Sample(options.sample, options.seed) if number == 0 and options.sample < 1 else None
    routed = route(messages, job.app, options.partitions or max(2, 2 * cores_of(spark)), sample)
    with failing_as(BatchFailedError):
        found = routed.mapInArrow(replace(job, number=next(_numbers)).verify, FOUND)
        found.persist(StorageLevel.DISK_ONLY).count()
    return found


def _stored_ids(options: VerifyOptions, connection: Connection, ranges: Iterable[KeyRange]) -> Documents:
    """Yield lists of `_STORED` rows: message ids of versions of sampled streams, or the errors of corrupt streams."""
    concurrency = ConcurrencyLimit(options.in_flight)
    table = connection.measured(connection.table, concurrency, options.wrap)

    async def keys_in(keys: KeyRange) -> list[str]:
        stored = [key async for page in stream_keys(connection.table, keys) for key in page]
        share = options.sample * SHARES
        return [key for key in stored if Shard.resolve(f"{options.seed}{key}", SHARES) < share]

    async def read(key: str) -> Sequence[Any]:
        try:
            first, ids = await until_undisturbed(RetryPolicy().beside(table), partial(made_by, table, key))
        except StoredDataError as error:
            return [_stored(key, error=str(error))]
        texts, places = list(map(id_text, ids)), range(0, len(ids), _IDS_AT_ONCE)
        return [_stored(key, first + at, texts[at : at + _IDS_AT_ONCE]) for at in places]

    for keys in ranges:
        damaged = Damaged()
        with collecting(damaged):
            stored = connection.run(keys_in(keys))
        yield [_stored(error.stream, error=str(error)) for error in damaged.errors]
        yield from connection.run_all(map(read, stored), concurrency)


def _stored(key: str, first: int = 1, ids: Sequence[str] = (), error: str | None = None) -> dict[str, Any]:
    handler, _, business_id = key.partition("-")
    return {"handler": handler, "business_id": business_id, "first": first, "ids": ids, "error": error}


def _lost(logs: Sequence[DataFrame], job: VerifyJob, connection: Connection) -> DataFrame:
    """Return a row for each stream that has no handler, has messages that are now routed elsewhere, or is corrupt."""
    spark, is_of_app = logs[0].sparkSession, sf.col("handler").isin(list(job.app.handlers))
    ranges = connection.run(split_keys(object_keys(connection.table), RANGES_OF_A_CORE * cores_of(spark)))
    with failing_as(BatchFailedError):
        documents = scanned(spark, Task(partial(_stored_ids, job.options), job.place), ranges)
        documents.persist(StorageLevel.DISK_ONLY).count()
    stored = documents.select(sf.from_json("found", _STORED).alias("stored")).select("stored.*")
    versions = stored.selectExpr("handler", "business_id", "first", "posexplode(ids) AS (at, message_id)")
    versions = versions.selectExpr("handler", "business_id", "first + at AS version", "message_id")
    sent = reduce(
        DataFrame.union, [each.selectExpr("message_id AS id", "handler AS wanted") for each in logs]
    )
    keys = ["message_id", "handler", "business_id"]
    looked_for = reduce(DataFrame.union, [find_routes(each, job.app).select(keys) for each in logs])
    is_sent = sf.expr("message_id = id AND coalesce(wanted, handler) = handler")
    moved = versions.where(is_of_app).join(sent, is_sent, "left_semi").join(looked_for, keys, "left_anti")
    streams = looked_for.select("handler", "business_id").distinct()
    damaged = stored.where("error IS NOT NULL").join(streams, ["handler", "business_id"], "left_anti")
    damaged = damaged.selectExpr("handler", "business_id", "first AS version", "NULL AS message_id", "error")
    elsewhere = sf.lit("The app looks for the message that made the version in another stream.")
    no_handler = sf.lit("The app has no handler of this name.")
    lost = moved.select(*versions.columns, elsewhere.alias("error"))
    lost = lost.union(versions.where(~is_of_app).select("*", no_handler.alias("error")))
    found = lost.withColumn("verdict", sf.lit(Verdict.STREAM_LOST.value))
    found = found.union(damaged.withColumn("verdict", sf.lit(Verdict.STREAM_DAMAGED.value)))
    first = sf.min(sf.struct("version", "message_id", "error")).alias("first")
    grouped = found.groupBy("handler", "business_id", "verdict").agg(first)
    return grouped.selectExpr(
        "handler", "business_id", "verdict", "first.*", "0 AS deliveries", "1 AS streams"
    )


def _count(verdicts: DataFrame) -> list[VerdictCount]:
    sums = [sf.sum(name).alias(name) for name in ("deliveries", "streams")]
    example = sf.min(sf.struct("message_id", "error")).alias("example")
    grouped = (
        verdicts.groupBy(*_KIND).agg(*sums, example).select(*_KIND, "deliveries", "streams", "example.*")
    )
    rows = [row.asDict() | {"verdict": Verdict(row["verdict"])} for row in grouped.collect()]
    reasons: dict[tuple[Any, ...], list[tuple[str, int]]] = {}
    if any(row["verdict"] is Verdict.UNKNOWN for row in rows):
        # Errors of deliveries without a version, most frequent first.
        unknown = verdicts.where((sf.col("verdict") == Verdict.UNKNOWN.value) & sf.col("error").isNotNull())
        alike = sf.regexp_replace("error", VARYING, "").alias("alike")
        sums = [sf.min("error").alias("error"), sf.sum("deliveries").alias("count")]
        counted = unknown.groupBy(*_KIND, alike).agg(*sums)
        for row in counted.orderBy(sf.desc("count"), "error").collect():
            reasons.setdefault(tuple(row[name] for name in _KIND), []).append((row["error"], row["count"]))
    order = list(Verdict)

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["handler"] or "~", row["type"] or "", order.index(row["verdict"]), row["revision"] or 0

    return [
        VerdictCount(**row, reasons=reasons.get(tuple(row[name] for name in _KIND), ()))
        for row in sorted(rows, key=place)
    ]
