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
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from eventstore import KeyRange
from handlers import App
from runtime.algorithms.choice import BatchAlgorithm, Dependencies, make_batch_algorithms
from runtime.algorithms.state_based.algorithm import StateBased
from runtime.algorithms.state_based.reprocess import VISIT, Manner, Reprocessor, is_made_by_handler
from runtime.batch_options import BatchOptions, TablePlace, check_app, remark
from runtime.clock import system_clock
from runtime.errors import UsageError
from runtime.file_systems import Folder, open_folder, within
from runtime.ledger.ledger import REPROCESSING, STATE_BASED, BatchRecord, Ledger
from runtime.ledger.settings import TableDemands, TableSettings, is_same_table
from runtime.messages.outcome import Reason, Status
from runtime.options import given
from runtime.spark.batch import BatchResult, Rounds, Work, new_batch_id, partitions_of
from runtime.spark.commit import absolute_folder
from runtime.spark.logs.normalise import find_routes, group, normalise
from runtime.spark.logs.read import Log, describe_input, lines_of, open_log
from runtime.spark.scan import scan_with
from runtime.spark.session import job_settings
from runtime.spark.worker.connection import Connection, open_current, open_table
from runtime.spark.worker.job import FoldJob
from runtime.tables.versions import AsOfBatch, end_of_batch
from runtime.telemetry import OFF
from runtime.versions.run import Commit, Version
from runtime.versions.stream import read_whole, stream_heads


@dataclass(frozen=True)
class Following(Manner):
    """The history of the table `place`: of all objects or one `business_id`, to its end or to the batch `end`."""

    place: TablePlace = field(repr=False)
    was: App  # the app that made the history, as far as it is known
    added: frozenset[str]  # handlers that the history lacks
    draw_key: bytes | None = field(repr=False)
    end: AsOfBatch | None = None
    business_id: str | None = None
    is_over: bool = False  # whether the second table is in use

    def has(self, version: Version) -> bool:
        written = Commit(1, version.batch, version.written_at or 0, version.batch_number)
        return self.end is None or self.end.has(written)


@dataclass(frozen=True)
class ReprocessJob(FoldJob):
    """Reprocesses the streams of a partition of deliveries."""

    following: Following = field(kw_only=True)

    @property
    def other_table(self) -> TablePlace:
        return self.following.place

    def algorithms(self, given: Dependencies) -> Mapping[str, BatchAlgorithm]:
        following, recorded = self.following, given.deduplication_store
        return {
            name: Reprocessor(
                algorithm,
                recorded,
                following.was.handlers.get(name, algorithm.handler),
                following,
                is_added=name in following.added,
            )
            for name, algorithm in make_batch_algorithms("state-based", given).items()
            if isinstance(algorithm, StateBased) and recorded is not None
        }


@dataclass(frozen=True)
class ReprocessRounds(Rounds):
    """Runs a reprocessing in rounds. When no output is left, extra rounds visit streams that still wait for one."""

    following: Following = field(kw_only=True)
    visits: list[Visit] = field(default_factory=list, kw_only=True)  # of the next round, to complete streams

    def job(self, record: BatchRecord) -> FoldJob:
        job = super().job(record)
        own = {each.name: getattr(job, each.name) for each in fields(job)}
        keeps, mark = any(visit.keeps for visit in self.visits), f"consistent-{record.token}"
        was, closes = self.following.was.keyed(self.following.draw_key), bool(self.visits) and not keeps
        following = replace(self.following, was=was, closes=closes, keeps=keeps, mark=mark)
        return ReprocessJob(**own, following=following)

    def _demands(self) -> TableDemands:
        following = self.following
        follows = None if following.is_over else following.place.table
        return replace(super()._demands(), follows=follows, draw_key=following.draw_key)

    def _has_next(self, record: BatchRecord) -> bool:
        self.visits.clear()
        if record.last_routable:
            return True
        self.options.step("Looking for messages that have not come")
        # The visits are kept: another attempt at the round would find some streams complete.
        folder = _kept(record)
        name = f"visits-{record.rounds}.json"
        if name not in folder.sizes():
            found, followed = self.incomplete()
            is_whole = self.following.business_id is None
            gone = [each for each in found if each.is_gone and is_whole and not (each.keeps and each.is_own)]
            if gone and not gone[0].keeps and self._count_compared(record) < followed:
                self.options.step("Logs of the history are missing: no version is left out")
                gone = []
            folder.put_whole(name, json.dumps(gone).encode())
        with folder.read(name) as file:
            self.visits.extend(Visit(*row) for row in json.loads(file.read()))
        return bool(self.visits)

    def _count_compared(self, record: BatchRecord) -> int:
        """Return how many versions of the history this batch has compared with new ones. Reads all its outcomes."""
        differs = f"status = '{Status.PROCESSED}' AND get_json_object(error, '$.was') IS NOT NULL"
        told = f"status = '{Status.DUPLICATE}' AND version IS NOT NULL OR {differs}"
        rows = self._folders(record).outcomes().where(told)
        return rows.select("handler", "business_id", "message_id").distinct().count()

    def _next_round(self, record: BatchRecord) -> Work:
        last = self._folders(record).outcomes(record.rounds - 1)
        held = last.where((sf.col("reason") == Reason.HELD_BACK.value) & sf.col("delivery").isNotNull())
        lines = lines_of(held.select(sf.col("delivery").alias("value")))
        held_back = normalise(lines, None, self.options.limits)
        routed = find_routes(self._new_outputs(record).unionByName(held_back), self.app)
        if self.visits:
            rows = [visit[:3] for visit in self.visits]
            visits = self.spark.createDataFrame(rows, "handler string, business_id string, sequence long")
            empty = {name: sf.lit(VISIT) for name in ("message_id", "type", "body")}
            routed = routed.unionByName(visits.withColumns(empty), allowMissingColumns=True)
        return Work(group(self.chosen(routed), self.partitions), self.job(record).fold)

    def chosen(self, routed: DataFrame) -> DataFrame:
        id_ = self.following.business_id
        return routed if id_ is None else routed.where(sf.col("business_id") == id_)

    def incomplete(self) -> tuple[list[Visit], int]:
        """Return the streams that were not followed to their end, and the total number of followed versions."""
        found, followed, cut = list[Visit](), list[int](), list[bool]()

        def merge(result: tuple[list[Any], int, bool]) -> None:
            found.extend(Visit(*row) for row in result[0])
            followed.append(result[1])
            cut.append(result[2])

        document = partial(_incomplete, self.following, frozenset(self.app.handlers))
        scan_with(self.spark, self.following.place, document, merge, other=self.place)
        return [each._replace(keeps=any(cut)) for each in found], sum(followed)


def _kept(record: BatchRecord) -> Folder:
    """Return the folder that keeps the visits of a batch's rounds until the batch is published."""
    return open_folder(within(record.out, "_reprocess", record.batch_id))


class Visit(NamedTuple):
    """A stream, reprocessed up to version `followed`. `is_gone`: its next message is an output that may never come."""

    handler: str
    business_id: str
    followed: int
    is_gone: bool
    is_own: bool  # the stream differs from the one of the first table
    keeps: bool = False  # messages may be lost, as streams of the table were truncated or forgotten


def _incomplete(
    following: Following, handlers: frozenset[str], connection: Connection, keys: KeyRange
) -> tuple[list[Visit], int, bool]:
    async def find() -> tuple[list[Visit], int, bool]:
        found, count, is_cut, old, new = list[Visit](), 0, False, connection.table, connection.other
        heads = {stream.key: stream.head async for stream in stream_heads(new, keys)}
        async for stream in stream_heads(old, keys):
            name, business_id, head = stream.handler, stream.business_id, stream.head
            own = heads.get(stream.key, head._replace(followed=0, shared=True))
            at = max(own.followed, head.kept_from - 1)
            is_cut = is_cut or head.kept_from > 1 or head.tombstone is not None
            if name not in handlers or following.business_id not in (None, business_id):
                continue
            count += min(at, head.versions) - head.kept_from + 1
            read = await read_whole(old, name, business_id) if at < head.versions else None
            versions = [version for run in read[1] for version in run.all()] if read else []
            awaited = next((each for each in versions if each.number > at and following.has(each)), None)
            if awaited is not None:
                is_gone = is_made_by_handler(awaited.message_id)
                found.append(Visit(name, business_id, at, is_gone, not own.shared))
        return found, count, is_cut

    return connection.run(find())


@dataclass(frozen=True)
class Reprocessed:
    """An ended reprocessing, and the streams that are incomplete because no log has their next message."""

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
    it recomputes the old outputs. `as_of`: stop at the end of this batch. `business_id`: handle only its objects.
    `capture`: capture values that the history lacks; otherwise the messages that need them become dead letters.

    Call it again with the id of a failed batch to resume the batch, or with a new id to follow messages that arrived
    meanwhile. Raises `UsageError` if the table cannot be reprocessed like this, and `BatchFailedError` if the batch
    stopped.
    """
    for each in (app, was or app):
        check_app(each)
    # History that is handled again is no new business, and must not count as processed.
    chosen = replace(given(BatchOptions, options), cascade=True, metrics=OFF)
    with job_settings(spark, messages):
        following = _follow(spark, TablePlace(store, table), into, batch_id, app)
        table, old = following.place.table, open_table(store, following.place.table, make=False, spark=spark)
        end = None if as_of is None else old.run(end_of_batch(old.table, as_of))
        following = replace(following, was=was or app, end=end, business_id=business_id, captures=capture)
        connection = open_table(store, into, TablePlace(store, table), spark=spark)
        new = TablePlace(store, into).for_workers()
        rounds = ReprocessRounds(
            spark, app, new, absolute_folder(out), chosen, connection, following=following
        )
        say = partial(remark, chosen.step)
        before = rounds.find(batch_id) if batch_id else None
        recorded = "" if before is None else before.input
        opened = open_log(
            spark, messages, chosen.log_format, say, decoding=chosen.decoding, recorded=recorded
        )
        if dict(opened.rows.dtypes).get("body") == "binary":
            raise UsageError("A log with binary bodies cannot be reprocessed: convert them to JSON.")
        log = normalise(opened.rows, chosen.source, chosen.limits)
        what = describe_input(opened)
        scope = f"up to {as_of or 'its end'}, objects {business_id or 'all'}, capture={capture}"
        begun = rounds.begin(batch_id or new_batch_id(), f"{REPROCESSING}{table} {scope}; {what}")
        ended = begun
        if not begun.is_finished:
            rows = group(rounds.chosen(find_routes(log, app)), partitions_of(spark, chosen))
            ended = rounds.end(begun, Work(rows, rounds.job(begun).fold), what.messages)
        _kept(ended).delete()
        _kept(ended).parent.delete_if_empty()
        return Reprocessed(rounds.result(begun, ended), rounds.incomplete()[0])


def _follow(spark: SparkSession, place: TablePlace, into: str, batch_id: str | None, app: App) -> Following:
    """Return the history of a table or its replacement. Raises `UsageError` if it cannot be reprocessed into `into`."""
    first = open_table(place.store, place.table, make=False, spark=spark)
    table, current = open_current(place.store, place.table, make=False, spark=spark)
    is_over = is_same_table(table, into) and not is_same_table(table, place.table)
    if is_over:  # the batch may be repeated after the switch
        done = None if batch_id is None else current.run(Ledger(current.table, system_clock).find(batch_id))
        if done is None or not done.is_finished:
            raise UsageError(f"{place.table} was switched to {into}: choose another --into.")
        table, current = place.table, first
    elif is_same_table(table, into):
        raise UsageError("--into must be another table than --table.")
    ledger = Ledger(current.table, system_clock)
    algorithm = current.run(ledger.algorithm())
    if algorithm is not None and algorithm[0] != STATE_BASED:
        raise UsageError(
            f"Only state-based tables have a history to reprocess; the algorithm of this one is {algorithm[0]}."
        )
    if batch_id is not None and not is_over and current.run(ledger.find(batch_id)) is not None:
        raise UsageError(f"{table} has a batch {batch_id} of its own: choose another --batch-id.")
    settings = current.run(TableSettings.of(current.table))
    if settings.follows is not None:
        raise UsageError(
            f"{table} itself reprocesses {settings.follows}: switch {settings.follows} to it first."
        )
    added = frozenset(app.handlers) - settings.owner.handlers if settings.owner else frozenset()
    following = TablePlace(place.store, table).for_workers()
    return Following(following, app, added, settings.draw_key, is_over=is_over)


_PAIRS = "array<struct<field string, before string, after string>>"
_OUTPUTS = (
    f"array<struct<change string, type string, message_id string, before string, after string, fields {_PAIRS}, "
    f"numbers {_PAIRS}>>"
)
_DOCUMENT = f"state string, was long, error string, fields {_PAIRS}, outputs {_OUTPUTS}, numbers {_PAIRS}"
Rows = list[dict[str, Any]]

_PARTS = """
    SELECT handler, type, business_id, 'state' AS part, 'same' AS kind, NULL AS fields, NULL AS numbers
    FROM {outcomes} WHERE status = 'duplicate' AND version IS NOT NULL
    UNION ALL SELECT handler, outcome.type, business_id, output.type, 'same', NULL, NULL
    FROM {outcomes} AS outcome LATERAL VIEW explode(outputs) AS output WHERE status = 'duplicate'
    UNION ALL SELECT handler, type, business_id, IF(state = 'object', 'final state', 'state'), state, fields, numbers
    FROM {different}
    UNION ALL SELECT handler, t.type, business_id, output.type, output.change, output.fields, output.numbers
    FROM {different} AS t LATERAL VIEW explode(outputs) AS output"""
"""States and outputs of messages and final states of objects, with the fields that differ and the sums of numbers."""

_COUNTS = """
    SELECT handler, type AS message, count_if(kind = 'same') AS same, count_if(kind = 'changed') AS changed,
        count_if(kind = 'new') AS new, count_if(kind = 'gone') AS gone, count_if(kind = '{other}') AS {other}
    FROM {{parts}} WHERE {which} GROUP BY handler, type ORDER BY handler, type"""
_QUERIES = {
    "States": _COUNTS.format(other="refused", which="part = 'state'"),
    "Outputs": _COUNTS.format(other="unknown", which="part NOT IN ('state', 'final state')"),
    "Fields that differ, with an example": """
        SELECT handler, message, of, field, count, example.*
        FROM (
            SELECT handler, type AS message, part AS of, one.field, count(*) AS count,
                min(struct(business_id AS object, one.before, one.after)) AS example
            FROM (SELECT *, explode(fields) AS one FROM {parts} WHERE part <> 'final state')
            GROUP BY handler, type, part, one.field
        ) ORDER BY count DESC, handler, message, of, field""",
    "Objects whose final state differs": """
        SELECT handler, business_id AS object, one.*
        FROM (SELECT *, explode(fields) AS one FROM {parts} WHERE part = 'final state') ORDER BY handler, object""",
    "Sums of what differs": """
        SELECT handler, part AS of, field, trim(TRAILING '.' FROM trim(TRAILING '0' FROM string(old))) AS before,
            trim(TRAILING '.' FROM trim(TRAILING '0' FROM string(new))) AS after,
            trim(TRAILING '.' FROM trim(TRAILING '0' FROM string(new - old))) AS difference
        FROM (
            SELECT handler, part, one.field, try_sum(TRY_CAST(one.before AS DECIMAL(38, 6))) AS old,
                try_sum(TRY_CAST(one.after AS DECIMAL(38, 6))) AS new
            FROM (SELECT *, explode(numbers) AS one FROM {parts}) GROUP BY handler, part, one.field
        ) ORDER BY handler, part, field""",
    "Dead letters": """
        SELECT handler, type AS message, reason, count(*) AS count, min(error) AS error FROM {outcomes}
        WHERE status = 'dead_letter' AND reason <> 'held_back'
        GROUP BY handler, type, reason ORDER BY handler, type, reason""",
}
"""The tables of a report."""


def differences(outcomes: DataFrame) -> DataFrame:
    """Return a row for each reprocessed message with another state or outputs, or object with another final state."""
    found = outcomes.where(f"status = '{Status.PROCESSED}' AND error IS NOT NULL")
    of_message = ("round", "handler", "business_id", "type", "message_id", "version")
    rows = found.select(*of_message, sf.from_json("error", _DOCUMENT).alias("found"))
    rows = rows.select(*of_message, "found.*")
    last = Window.partitionBy("handler", "business_id", "message_id")
    rows = rows.withColumn("newest", sf.max("round").over(last)).where("round = newest")
    return rows.where("state <> 'object' OR size(fields) > 0").drop("round", "newest")


def report(found: Reprocessed, different: DataFrame, limit: int) -> dict[str, Rows]:
    """Return the tables of a report, up to `limit` rows each. `different`: persisted rows of `differences`."""
    spark, outcomes = different.sparkSession, found.result.outcomes
    parts = spark.sql(_PARTS, outcomes=outcomes, different=different)
    rows = {
        title: spark.sql(query, outcomes=outcomes, parts=parts).limit(limit).collect()
        for title, query in _QUERIES.items()
    }
    missing = Counter(visit.handler for visit in found.missing)
    return {title: [row.asDict() for row in some] for title, some in rows.items()} | {
        "Not handled to the end: run it again with all logs": [
            {"handler": name, "objects": count} for name, count in sorted(missing.items())
        ]
    }
