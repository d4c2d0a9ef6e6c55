"""Reprocessing: a batch that handles the history of a table again, with other handlers, into a second table.

In each round, the history of each stream is followed until a message is missing (see
`runtime.algorithms.state_based.reprocess`). The messages are first those of the log, then outputs of the previous round
and messages held back. If no output is left, streams that wait for an output treat it as gone. Publishes nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType

from eventstore import ConcurrencyConflictError, KeyRange, RowError, Table
from handlers import App
from runtime.algorithms.choice import BatchAlgorithm, Dependencies, make_batch_algorithms
from runtime.algorithms.state_based.algorithm import StateBased
from runtime.algorithms.state_based.reprocess import VISIT, Reprocessor, is_made_by_handler
from runtime.batch_options import BatchOptions, TablePlace, check_app, remark
from runtime.errors import UsageError
from runtime.file_systems import open_folder, within
from runtime.ledger.ledger import REPROCESSING, STATE_BASED, BatchRecord, Ledger
from runtime.ledger.settings import LEDGER, TableDemands, TableOwner, TableSettings, has_objects
from runtime.messages.outcome import Reason, Status
from runtime.options import given
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.spark.batch import BatchResult, Rounds, Work, new_batch_id, partitions_of
from runtime.spark.commit import absolute_folder
from runtime.spark.logs.normalise import find_routes, group, normalise
from runtime.spark.logs.read import Log, describe_input, lines_of, open_log
from runtime.spark.scan import scan_with
from runtime.spark.session import job_settings
from runtime.spark.worker.connection import Connection, open_table
from runtime.spark.worker.job import FoldJob
from runtime.tables.versions import AsOfBatch, end_of_batch
from runtime.telemetry import OFF
from runtime.versions.head import HEAD_PROPERTIES, read_head
from runtime.versions.run import Commit, Version
from runtime.versions.stream import read_whole, state_streams


@dataclass(frozen=True)
class Following:
    """The history to reprocess: that of the table `place` or of one object, optionally up to a batch."""

    place: TablePlace = field(repr=False)
    was: App  # the app that made the history, as far as it is known
    end: AsOfBatch | None = None
    business_id: str | None = None
    captures: bool = False

    def has(self, version: Version) -> bool:
        """Return whether a version belongs to the history."""
        written = Commit(1, version.batch, version.written_at or 0, version.batch_number)
        return self.end is None or self.end.has(written)


@dataclass(frozen=True)
class ReprocessJob(FoldJob):
    """Follows the streams of a partition of deliveries."""

    following: Following | None = None
    closes: bool = False
    mark: str = ""

    @property
    def other_table(self) -> TablePlace | None:
        """The table with the history."""
        return None if self.following is None else self.following.place

    def algorithms(self, given: Dependencies) -> Mapping[str, BatchAlgorithm]:
        """Return a reprocessor for each handler."""
        following, table = self.following, given.deduplication_store
        if following is None or table is None:
            raise AssertionError("A reprocessing follows a table.")
        return {
            name: Reprocessor(
                algorithm,
                table,
                following.was.handlers.get(name, algorithm.handler),
                has=following.has,
                captures=following.captures,
                closes=self.closes,
                mark=self.mark,
            )
            for name, algorithm in make_batch_algorithms("state-based", given).items()
            if isinstance(algorithm, StateBased)
        }


@dataclass(frozen=True)
class ReprocessRounds(Rounds):
    """Runs the rounds of a reprocessing."""

    following: Following | None = None
    visits: list[Visit] = field(default_factory=list)  # of the next round, if that is to complete streams

    def job(self, record: BatchRecord) -> FoldJob:
        """Return the job for the workers in the next round. Costs a request."""
        job = super().job(record)
        following, keyed = self.following, next(iter(job.app.handlers.values()))
        if following is not None:
            following = replace(following, was=following.was.keyed(keyed.draw_key))
        own = {each.name: getattr(job, each.name) for each in fields(job)}
        return ReprocessJob(
            **own, following=following, closes=bool(self.visits), mark=f"consistent-{record.token}"
        )

    def _demands(self) -> TableDemands:
        follows = None if self.following is None else self.following.place.table
        return replace(super()._demands(), follows=follows)

    def _has_next(self, record: BatchRecord) -> bool:
        self.visits.clear()
        if record.last_routable:
            return True
        self.options.step("Looking for messages that have not come")
        # The visits are kept: another attempt at the round would find some streams complete.
        folder = open_folder(within(record.out, "_reprocess", record.batch_id))
        name = f"visits-{record.rounds}.json"
        if name not in folder.sizes():
            found = [visit for visit in self.incomplete() if visit.is_gone and self._is_whole]
            folder.create()
            folder.put(name, json.dumps([[*visit.row, visit.is_gone] for visit in found]).encode())
            folder.flush(name)
        with folder.read(name) as file:
            self.visits.extend(Visit(*row) for row in json.loads(file.read()))
        return bool(self.visits)

    @property
    def _is_whole(self) -> bool:
        return self.following is not None and self.following.business_id is None

    def _next_round(self, record: BatchRecord) -> Work:
        last = self._folders(record).outcomes(record.rounds - 1)
        held = last.where((sf.col("reason") == Reason.HELD_BACK.value) & sf.col("delivery").isNotNull())
        lines = lines_of(held.select(sf.col("delivery").alias("value")))
        held_back = normalise(lines, None, self.options.limits)
        routed = find_routes(self._new_outputs(record).unionByName(held_back), self.app)
        if self.visits:
            rows = [visit.row for visit in self.visits]
            visits = self.spark.createDataFrame(rows, "handler string, business_id string, sequence long")
            empty = {name: sf.lit(VISIT) for name in ("message_id", "type", "body")}
            routed = routed.unionByName(visits.withColumns(empty), allowMissingColumns=True)
        return Work(group(self.chosen(routed), self.partitions), self.job(record).fold)

    def chosen(self, routed: DataFrame) -> DataFrame:
        """Return the rows of the objects to reprocess."""
        id_ = None if self.following is None else self.following.business_id
        return routed if id_ is None else routed.where(sf.col("business_id") == id_)

    def incomplete(self) -> list[Visit]:
        """Return the streams not followed to the end of their history. Costs one request for every 1,000 streams."""
        found: list[Visit] = []
        if self.following is not None:
            document = partial(_incomplete, self.following, frozenset(self.app.handlers))
            scan_with(
                self.spark,
                self.following.place,
                document,
                lambda rows: found.extend(Visit(*row) for row in rows),
                other=self.place,
            )
        return found


@dataclass(frozen=True, slots=True)
class Visit:
    """A stream, how far it was followed, and whether it waits for an output that may be gone."""

    handler: str
    business_id: str
    followed: int
    is_gone: bool

    @property
    def row(self) -> tuple[str, str, int]:
        """The stream and how far it was followed."""
        return self.handler, self.business_id, self.followed


def _incomplete(
    following: Following, handlers: frozenset[str], connection: Connection, keys: KeyRange
) -> list[tuple[str, str, int, bool]]:
    async def find() -> list[tuple[str, str, int, bool]]:
        found, old, new = [], connection.table, connection.other
        followed = {
            stream.partition.key: read_head(stream.properties or {}).followed
            async for stream in state_streams(new, keys, HEAD_PROPERTIES)
        }
        async for stream in state_streams(old, keys, HEAD_PROPERTIES):
            name, _, business_id = stream.partition.key.partition("-")
            head = read_head(stream.properties or {})
            at = max(followed.get(stream.partition.key, 0), head.kept_from - 1)
            if (
                name not in handlers
                or following.business_id not in (None, business_id)
                or at >= head.versions
            ):
                continue
            read = await read_whole(old, name, business_id)
            versions = [version for run in read[1] for version in run.all()] if read else []
            awaited = next((each for each in versions if each.number > at and following.has(each)), None)
            if awaited is not None:
                found.append((name, business_id, at, is_made_by_handler(awaited.message_id)))
        return found

    return connection.run(find())


@dataclass(frozen=True)
class Reprocessed:
    """An ended reprocessing, and the streams whose messages are in no log."""

    result: BatchResult
    missing: Sequence[Visit]


def reprocess(
    spark: SparkSession,
    messages: Log,
    app: App,
    *,
    store: str,
    table: str,
    into: str,
    out: str,
    was: App | None = None,
    as_of: str | None = None,
    business_id: str | None = None,
    capture: bool = False,
    batch_id: str | None = None,
    **options: Any,  # noqa: ANN401 - the fields of BatchOptions
) -> Reprocessed:
    """Handle the history of a table again, with the handlers of `app`, into the table `into` of the store.

    `messages`: all logs of the history, see `run_batch`. `was`: the app that made the history, if methods were edited;
    it repeats old outputs. `as_of`: follow the history up to a batch. `business_id`: follow only objects with this id.
    `capture`: capture values that the history lacks; otherwise the messages that need them become dead letters.

    Call it again with the id of a failed batch to resume the batch, or with a new id to follow messages that arrived
    meanwhile. Raises `UsageError` and `BatchFailedError`.
    """
    for each in (app, was or app):
        check_app(each)
    if table == into:
        raise UsageError("--into must be another table than --table.")
    # History that is handled again is no new business, and must not count as processed.
    chosen = replace(given(BatchOptions, options), cascade=True, metrics=OFF)
    place, new = TablePlace(store, table).for_workers(), TablePlace(store, into).for_workers()
    with job_settings(spark, messages):
        old = open_table(store, table, make=False, spark=spark)
        algorithm = old.run(Ledger(old.table, chosen.clock).algorithm())
        if algorithm is not None and algorithm[0] != STATE_BASED:
            raise UsageError(
                f"Only state-based tables have a history to reprocess; the algorithm of this one is {algorithm[0]}."
            )
        end = None if as_of is None else old.run(end_of_batch(old.table, as_of))
        connection = open_table(store, into, TablePlace(store, table), spark=spark)
        connection.run(_claim(old.table, connection.table, table, TableOwner.of(app)))
        following = Following(place, was or app, end, business_id, capture)
        rounds = ReprocessRounds(
            spark, app, new, absolute_folder(out), chosen, connection, following=following
        )
        say = partial(remark, chosen.step)
        opened = open_log(spark, messages, chosen.log_format, say, decoding=chosen.decoding)
        if isinstance(
            opened.rows.schema["body"].dataType if "body" in opened.rows.columns else None, BinaryType
        ):
            raise UsageError("A log with binary bodies cannot be reprocessed: convert them to JSON.")
        log = normalise(opened.rows, chosen.source, chosen.limits)
        what = describe_input(opened)
        scope = f"up to {as_of or 'its end'}, objects {business_id or 'all'}, capture={capture}"
        begun = rounds.begin(batch_id or new_batch_id(), f"{REPROCESSING}{table} {scope}; {what}")
        ended = begun
        if not begun.is_finished:
            rows = group(rounds.chosen(find_routes(log, app)), partitions_of(spark, chosen))
            ended = rounds.end(begun, Work(rows, rounds.job(begun).fold), what.messages)
        return Reprocessed(rounds.result(begun, ended), rounds.incomplete())


_PAIRS = "array<struct<field string, before string, after string>>"
_OUTPUTS = (
    f"array<struct<change string, type string, message_id string, before string, after string, fields {_PAIRS}, "
    f"numbers {_PAIRS}>>"
)
_DOCUMENT = f"state string, was long, error string, fields {_PAIRS}, outputs {_OUTPUTS}, numbers {_PAIRS}"
Rows = list[dict[str, Any]]

_QUERIES = {
    "States": """
        SELECT handler, type AS message, count_if(state = 'same') AS same, count_if(state = 'changed') AS changed,
            count_if(state = 'new') AS new, count_if(state = 'gone') AS gone, count_if(state = 'refused') AS refused
        FROM (
            SELECT handler, type, 'same' AS state FROM {outcomes} WHERE status = 'duplicate' AND version IS NOT NULL
            UNION ALL SELECT handler, type, state FROM {different} WHERE state <> 'object'
        ) GROUP BY handler, type ORDER BY handler, type""",
    "Outputs": """
        SELECT handler, type AS message, count_if(change = 'same') AS same, count_if(change = 'changed') AS changed,
            count_if(change = 'new') AS new, count_if(change = 'gone') AS gone, count_if(change = 'unknown') AS unknown
        FROM (
            SELECT handler, type, 'same' AS change FROM {outcomes} LATERAL VIEW explode(outputs) AS output
            WHERE status = 'duplicate'
            UNION ALL SELECT handler, type, output.change FROM {different} LATERAL VIEW explode(outputs) AS output
        ) GROUP BY handler, type ORDER BY handler, type""",
    "Fields that differ, with an example": """
        SELECT handler, type AS message, part AS of, field, count, example.business_id AS object, example.before,
            example.after
        FROM (
            SELECT handler, type, part, one.field, count(*) AS count,
                min(struct(business_id, one.before, one.after)) AS example
            FROM (
                SELECT handler, type, business_id, 'state' AS part, explode(fields) AS one FROM {different}
                WHERE state <> 'object'
                UNION ALL SELECT handler, t.type, business_id, output.type, one FROM {different} AS t
                    LATERAL VIEW explode(outputs) AS output LATERAL VIEW explode(output.fields) AS one
            ) GROUP BY handler, type, part, one.field
        ) ORDER BY count DESC, handler, type, part, field""",
    "Objects whose final state differs": """
        SELECT handler, business_id AS object, one.field, one.before, one.after
        FROM {different} LATERAL VIEW explode(fields) AS one WHERE state = 'object' ORDER BY handler, object""",
    "Sums of what differs": """
        SELECT handler, part AS of, field, trim(TRAILING '.' FROM trim(TRAILING '0' FROM string(old))) AS before,
            trim(TRAILING '.' FROM trim(TRAILING '0' FROM string(new))) AS after,
            trim(TRAILING '.' FROM trim(TRAILING '0' FROM string(new - old))) AS difference
        FROM (
            SELECT handler, part, one.field, try_sum(TRY_CAST(one.before AS DECIMAL(38, 6))) AS old,
                try_sum(TRY_CAST(one.after AS DECIMAL(38, 6))) AS new
            FROM (
                SELECT handler, 'final state' AS part, explode(numbers) AS one FROM {different} WHERE state = 'object'
                UNION ALL SELECT handler, output.type, one FROM {different}
                    LATERAL VIEW explode(outputs) AS output LATERAL VIEW explode(output.numbers) AS one
            ) GROUP BY handler, part, one.field
        ) ORDER BY handler, part, field""",
    "Dead letters": """
        SELECT handler, type AS message, reason, count(*) AS count, min(error) AS error FROM {outcomes}
        WHERE status = 'dead_letter' AND reason <> 'held_back'
        GROUP BY handler, type, reason ORDER BY handler, type, reason""",
}
"""The tables of a report."""


def differences(outcomes: DataFrame) -> DataFrame:
    """Return a row for each message whose state or outputs differ, and for each object whose final state differs."""
    found = outcomes.where(f"status = '{Status.PROCESSED}' AND error IS NOT NULL")
    of_message = ("round", "handler", "business_id", "type", "message_id", "version")
    rows = found.select(*of_message, sf.from_json("error", _DOCUMENT).alias("found"))
    rows = rows.select(*of_message, "found.*")
    last = Window.partitionBy("handler", "business_id", "message_id")
    rows = rows.withColumn("newest", sf.max("round").over(last)).where("round = newest")
    return rows.where("state <> 'object' OR size(fields) > 0").drop("round", "newest")


def report(found: Reprocessed, different: DataFrame, limit: int) -> dict[str, Rows]:
    """Return the tables of a report, up to `limit` rows each. `different`: persisted rows of `differences`."""
    tables = {
        title: [
            row.asDict()
            for row in different.sparkSession.sql(query, outcomes=found.result.outcomes, different=different)
            .limit(limit)
            .collect()
        ]
        for title, query in _QUERIES.items()
    }
    missing = Counter(visit.handler for visit in found.missing)
    rows = [{"handler": name, "objects": count} for name, count in sorted(missing.items())]
    return tables | {"Not handled: the logs lack messages of": rows}


async def _claim(old: Table, new: Table, name: str, owner: TableOwner) -> None:
    """Mark a new table as a reprocessing of `name`, with the same draws. Raises `UsageError` for a table in use."""

    async def attempt() -> None:
        of_old, of_new = await TableSettings.of(old), await TableSettings.of(new)
        if of_new.follows == name:
            return
        if of_old.follows is not None:
            raise UsageError(
                f"{name} itself reprocesses {of_old.follows}: switch {of_old.follows} to it first."
            )
        if of_new != TableSettings() or await has_objects(new):
            raise UsageError("--into must be a new table, or one that reprocesses the same table.")
        settings = TableSettings(owner, of_old.draw_key, follows=name)
        try:
            await new.transact(LEDGER, [settings.operation()])
        except RowError as error:
            raise ConcurrencyConflictError(LEDGER, str(error)) from error

    await until_undisturbed(RetryPolicy().beside(new), attempt)
