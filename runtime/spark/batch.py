"""Batches: run the handlers of an app over a message log, or sweep outboxes.

In a round, workers handle messages and write outcomes to files. The ledger chooses the attempt that counts, and the
driver commits its files (`runtime.spark.commit`). With `cascade`, the outputs of a round are the messages of the next.
When no handler takes an output, the batch is published, and immutable.

Algorithms with an outbox finish the messages of a round in a second pass after its commit. Resuming a batch repeats the
second pass of its last committed round.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from handlers import App
from handlers.guard import guarded
from runtime.algorithms.algorithm import AT_ONCE
from runtime.algorithms.choice import check_swept, make_outboxes
from runtime.batch_options import BatchOptions, TablePlace, check_app, remark
from runtime.clock import cut_off
from runtime.errors import BatchFailedError, BatchHeldBackError, BatchRefusedError, UsageError
from runtime.file_systems import open_folder
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import BatchRecord, Ledger
from runtime.ledger.settings import TableDemands
from runtime.messages.outcome import VARYING, DeadLetters, Status
from runtime.options import given
from runtime.spark.commit import MERGED_UP_TO, BatchFolders, absolute_folder, check_unused, marks_last
from runtime.spark.logs.normalise import keep_large, normalise, route
from runtime.spark.logs.read import Log, describe_input, is_kafka, open_log
from runtime.spark.session import check_workers, cores_of, failing_as, job_settings, planned_once
from runtime.spark.worker.connection import Connection, open_current, reach
from runtime.spark.worker.job import FoldJob
from runtime.spark.worker.outcomes import PART, Fold, OutcomeFile, OutcomeFileWriter, PartJob, totals, written
from runtime.telemetry import OFF, Metrics, batch_span


def run_batch(
    spark: SparkSession,
    messages: Log,
    app: App,
    *,
    store: str,
    table: str,
    out: str,
    batch_id: str | None = None,
    **options: Any,  # noqa: ANN401 - the fields of BatchOptions
) -> DataFrame:
    """Run a batch to its end. Return a DataFrame that scans its outcomes, one for each delivery to a handler.

    `messages`: the path of a log, a list of paths, the URL of topics in Kafka (docs/kafka.md), or a table: a DataFrame
    of Spark or pandas, or an Arrow table. A log has the columns message_id, type and body, and optionally business_id,
    sequence, enqueued_at, headers and handler.
    `store`: the URL of a store. `out`: the folder for outcomes. `options`: the fields of `BatchOptions`. `batch_id`: by
    default a new id. The id of a failed batch resumes the batch. The id of a published batch only returns its outcomes.

    Costs a query and a transaction for each stream of a round. Raises `UsageError` for invalid arguments, and
    `BatchFailedError` if the batch stopped.
    """
    return Batch(spark, app, store, table, out, given(BatchOptions, options)).run(messages, batch_id).outcomes


@dataclass
class Batch:
    """Runs batches of one app on one table."""

    spark: SparkSession
    app: App
    store: str = field(repr=False)
    table: str
    out: str
    options: BatchOptions = field(default_factory=BatchOptions)

    def __post_init__(self) -> None:
        check_app(self.app)
        TablePlace(self.store, self.table)
        absolute_folder(self.out)

    def run(self, messages: Log, batch_id: str | None = None) -> BatchResult:
        """Run the uncommitted rounds of a batch, and publish it. If `batch_id` is None, begin a new batch."""
        with job_settings(self.spark, messages):
            options, say = self.options, partial(remark, self.options.step)
            before = self.rounds().find(batch_id) if batch_id and is_kafka(messages) else None
            recorded = "" if before is None else before.input
            opened = open_log(
                self.spark, messages, options.log_format, say, decoding=options.decoding, recorded=recorded
            )
            if opened.given is not None:
                options.step(f"Reading the {opened.given.name}")
            large = options.keep_large and absolute_folder(options.keep_large)
            log = normalise(opened.rows, options.source, options.limits)
            types, partitions = options.types_of(self.app), partitions_of(self.spark, options)
            # Planning in Java uses one core, and dominates the time of a small log.
            with ThreadPoolExecutor(1, "planning") as beside:
                planned = beside.submit(route, log, self.app, partitions, types=types)
                what = describe_input(opened)
            rounds = self.rounds()
            begun = rounds.begin(batch_id, str(what))
            if begun.is_finished:
                return rounds.result(begun, begun)
            if large:  # after the ledger has accepted id and input, so no other batch's are replaced
                options.step("Keeping what is too large")
                keep_large(opened.rows, options.limits, large, begun.batch_id)
            job = replace(rounds.job(begun), types=types)
            ended = rounds.end(begun, Work(planned.result(), job.fold), what.messages)
            return rounds.result(begun, ended)

    def sweep(self, older_than: timedelta = AT_ONCE, batch_id: str | None = None) -> BatchResult:
        """Publish outputs that crashed workers or abandoned batches left in outboxes.

        A sweep is a batch. Its outcomes are duplicates that carry the outputs. With `cascade`, handlers take the
        outputs. Skips messages that were handled outside a batch less than `older_than` ago. Costs one request for
        every 1,000 entities, and three more for each entity with unfinished messages. Raises `UsageError` for the
        state-based algorithm, which stores no outputs.
        """
        check_swept(self.options.algorithm)
        latest = cut_off(self.options.clock, older_than)
        with job_settings(self.spark):
            rounds = self.rounds()
            begun = rounds.begin(batch_id, f"what was left behind {older_than} ago")
            if begun.is_finished:
                return rounds.result(begun, begun)
            job = rounds.job(begun)

            async def unfinished() -> list[tuple[str, str]]:
                outboxes = make_outboxes(job.options.algorithm, job.open()[2])
                return [
                    (name, outbox.entities.business_id(key))
                    for name, outbox in outboxes.items()
                    async for key in outbox.entities.unfinished()
                ]

            keys = [] if begun.rounds else rounds.connection.run(unfinished())
            entities = self.spark.createDataFrame(keys, "handler string, business_id string")
            work = Work(entities.repartition(rounds.partitions), partial(job.sweep, latest))
            return rounds.result(begun, rounds.end(begun, work))

    def rounds(self) -> Rounds:
        """Open the table, and return the runner of rounds."""
        table, connection = open_current(self.store, self.table, self.options.other_table, spark=self.spark)
        place = TablePlace(self.store, table).for_workers()
        return Rounds(self.spark, self.app, place, absolute_folder(self.out), self.options, connection)


class Work(NamedTuple):
    """The input of a round, and the fold that workers run over each partition of the input."""

    rows: DataFrame
    fold: Fold
    is_planned_once: bool = False
    check: Callable[[], None] = lambda: None  # raises if the rows may have changed while they were read


_IS_KNOWN = f"status IN ('{Status.PROCESSED}', '{Status.DUPLICATE}')"


@dataclass(frozen=True)
class BatchResult:
    """A published batch: its record in the ledger, and its outcomes."""

    record: BatchRecord
    outcomes: DataFrame
    was_published: bool  # whether the batch was published before the call, which then ran nothing

    def __repr__(self) -> str:
        counts = [f"{count:,} {name.replace('_', ' ')}" for name, count in self.record.counts.items()]
        when = " before: nothing was run" if self.was_published else ""
        said = ", ".join(counts) or "no messages"
        return f"Batch {self.record.batch_id} was published{when}: {said}, in {self.record.out}"


def new_batch_id() -> str:
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def partitions_of(spark: SparkSession, options: BatchOptions) -> int:
    return options.partitions or max(2, 2 * cores_of(spark))


@dataclass(frozen=True)
class Rounds:
    """Runs the rounds of a batch. `begin` begins or resumes a batch. `end` runs and publishes it."""

    spark: SparkSession
    app: App
    place: TablePlace  # absolute, as are all paths here: workers have other working directories
    out: str
    options: BatchOptions
    connection: Connection
    again: str = field(default="run it again with its id", kw_only=True)  # in errors: how to resume

    @cached_property
    def _task_metrics(self) -> Metrics:
        """Empty metrics for a job. The job is pickled, so each task fills its own copy."""
        return Metrics(is_on=self.options.metrics.is_on, forwards=False)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.connection.table, self.options.clock)

    @property
    def partitions(self) -> int:
        return partitions_of(self.spark, self.options)

    def check_table(self) -> None:
        """Raise `UsageError` if the table belongs to another app or algorithm."""
        self.connection.run(self.ledger.check_table(self.options.described_algorithm(), self._demands()))

    def _demands(self) -> TableDemands:
        return self.options.claim(self.app)

    def check_place(self) -> None:
        """Raise `UsageError` if outcomes cannot be written, or if workers lack a module or cannot open the store."""
        tried = open_folder(self.out).sub(f"_writable-{uuid.uuid4().hex}")
        try:
            tried.create()
            tried.touch("file")
            tried.delete()
        except OSError as error:
            raise UsageError(
                f"Outcomes cannot be written to {self.out}: {error}. Choose another --out."
            ) from error
        check_workers(self.spark, partial(reach, self.app, self.place, self.options.other_table))

    def find(self, batch_id: str) -> BatchRecord | None:
        return self.connection.run(self.ledger.find(batch_id))

    def begin(self, batch_id: str | None, what: str) -> BatchRecord:
        """Run all checks, then begin or resume a batch in the ledger. Return its record. `what`: its input, as text."""
        self.check_table()
        begun = None if batch_id is None else self.find(batch_id)
        if batch_id is not None and begun is None:
            check_unused(self.out, batch_id)
        if begun is None or not begun.is_finished:
            self.check_place()
        return self.enter(batch_id or new_batch_id(), what)

    def enter(self, batch_id: str, what: str) -> BatchRecord:
        """Begin or resume a batch as `begin` does, without checks: first call `check_table` and `check_place`."""
        input_ = f"{what}; handlers {', '.join(sorted(self.app.handlers))}; {self.options.described()}"
        algorithm, demands = self.options.described_algorithm(), self._demands()
        begin = self.ledger.begin(batch_id, input_, self.out, algorithm, demands)
        return self.connection.run(begin)

    def end(self, record: BatchRecord, first: Work, messages: int | None = None) -> BatchRecord:
        """Run uncommitted rounds, then publish. `first`: the work of round 0. `messages`: its message count or None."""
        began = time.time()
        with batch_span("process batch", batch_id=record.batch_id, table=self.place.table) as note:
            ended = self._end(record, first, messages)
            note(tuple, **ended.counts)
        metrics, now = self.options.metrics, time.time()
        metrics.add("batches", 1)
        metrics.set("last_batch", {(): now - began})
        metrics.set("last_batch_end", {(): now})
        return ended

    def _end(self, record: BatchRecord, first: Work, messages: int | None) -> BatchRecord:
        begun, record = record, self._restart_if_damaged(record)
        is_repeat = record is not begun  # its messages were counted before
        self._finish(record)
        while record.rounds == 0 or self._has_next(record):
            number = record.rounds
            self._check_cascade(record, messages)
            with batch_span("process round", batch_id=record.batch_id, round=number) as note:
                if not self._folders(record).is_decided():
                    work = first if number == 0 else self._next_round(record)
                    record = self._decide(record, *self._handle(record, work))
                if record.rounds == number:
                    record = self._commit(record, is_repeat=is_repeat)
                note(partial(self._folders(record).causes, number))
                self._finish(record)
        folders = self._folders(record)
        damaged = folders.damaged()
        if damaged is not None:
            raise BatchFailedError(
                f"Outcomes in {damaged} were deleted or changed. {self._how_to_resume(record)}"
            )
        folders.release()
        record = self.connection.run(self.ledger.publish(record))
        folders.remove_staging()
        return record

    def _restart_if_damaged(self, record: BatchRecord) -> BatchRecord:
        """If outcomes are gone, restart the batch, or with an outbox raise `BatchFailedError`. Return the record."""
        folders = self._folders(record)
        damaged = folders.damaged()
        if damaged is None:
            return record
        if self.options.has_outbox:
            raise BatchFailedError(
                f"Outcomes in {damaged} were deleted or changed, and the algorithm {self.options.algorithm} cannot "
                f"recreate them: restore the files, and run the batch again with its id; or abandon it."
            )
        self.options.step(f"Outcomes in {damaged} were deleted or changed: running all rounds again")
        # Revoked and listed before the restart: afterwards, another driver may commit the rounds again.
        folders.revoke()
        files = folders.in_place()
        record = self.connection.run(self.ledger.begin_again(record))
        for folder, names in files:
            for name in marks_last(names):
                folder.delete_file(name)
            folder.delete_if_empty()
        return record

    def _has_next(self, record: BatchRecord) -> bool:
        return self.options.cascade and record.last_routable > 0

    def _check_cascade(self, record: BatchRecord, messages: int | None) -> None:
        """Raise `BatchFailedError` for too many rounds or outputs. `messages`: how many round 0 had, if known."""
        if record.rounds >= self.options.max_rounds:
            raise BatchFailedError(
                f"The cascade of batch {record.batch_id} has not ended after {record.rounds} rounds. Nothing is lost: "
                f"{self.again}, now with a higher --max-rounds, or look for handlers that answer each other endlessly."
            )
        if record.rounds:
            began_with = self._folders(record).rows(0) if messages is None else messages
            published, most = record.counts.get("outputs", 0), self.options.max_outputs
            if published > most * began_with:
                raise BatchFailedError(
                    f"The cascade of batch {record.batch_id} has published {published:,} messages for the "
                    f"{began_with:,} that it began with, more than {most:,} for each. Nothing is lost: {self.again}, "
                    f"now with a higher --max-outputs, or look for handlers that answer each other with more and more "
                    f"messages."
                )

    def _next_round(self, record: BatchRecord) -> Work:
        return Work(route(self._new_outputs(record), self.app, self.partitions), self.job(record).fold)

    def _new_outputs(self, record: BatchRecord) -> DataFrame:
        """Return the last round's outputs as a log, with a row for each handler that has not yet handled the output."""
        folders, handlers = self._folders(record), sf.lit(None).cast("array<string>")
        for name in self.app.message_types:
            takers = sf.lit([each.handler for each in self.app.routes(name)])
            handlers = sf.when(sf.col("type") == name, takers).otherwise(handlers)
        outputs_ = published_outputs(folders.outcomes(record.rounds - 1))
        taken = outputs_.withColumn("handler", sf.explode(handlers))
        handled = folders.outcomes().where(_IS_KNOWN).where("version IS NOT NULL")
        new = taken.join(handled, ["message_id", "handler"], "left_anti").select(taken.columns)
        nothing = dict.fromkeys(("business_id", "problem", "line"), sf.lit(None).cast("string"))
        return new.withColumns(nothing)

    def job(self, record: BatchRecord) -> FoldJob:
        """Return the job for the workers in the next round. Costs a request."""
        options = self.options
        open_batches, settings = self.connection.run(self.ledger.snapshot())
        batch = BatchContext(
            record.batch_id,
            open_batches,
            is_cascade=record.rounds > 0,
            late=options.late,
            on_error=options.on_error,
            on_difference=options.on_difference,
            number=record.number,
            limits=options.limits,
        )
        return FoldJob(
            (guarded(self.app) if options.guard else self.app).keyed(settings.draw_key),
            self.place.store,
            self.place.table,
            batch,
            replace(options, step=BatchOptions.step, metrics=OFF),  # those of the driver must not be pickled
            is_supervised=True,
            metrics=self._task_metrics,
        )

    def _handle(self, record: BatchRecord, work: Work) -> tuple[str, Sequence[OutcomeFile]]:
        """Run the work of a round on the workers. Return the attempt and its files."""
        folders = self._folders(record)
        self.options.step(f"Round {record.rounds}: handling messages")
        began, attempt = time.monotonic(), folders.stage()
        job = PartJob(work.fold, folders.staged(attempt), tuple(self.app.message_types), self._task_metrics)
        with (
            failing_as(BatchFailedError, self._how_to_resume(record)),
            planned_once(self.spark) if work.is_planned_once else nullcontext(),
        ):
            parts = _parts(work.rows, job)
        work.check()
        counts, _ = totals(parts)
        count, seconds = sum(counts.values()) - counts["outputs"], time.monotonic() - began
        rate = count / max(seconds, 0.001)
        self.options.step(f"Round {record.rounds}: {count:,} outcomes, {rate:,.0f} a second")
        self.options.step(f"Round {record.rounds}: committing outcomes")
        self.connection.run(self.connection.table.barrier())
        return attempt, parts

    def _decide(self, record: BatchRecord, attempt: str, parts: Sequence[OutcomeFile]) -> BatchRecord:
        """Propose an attempt to the ledger. Return the record with the chosen attempt, perhaps another driver's."""
        folders, types = self._folders(record), tuple(self.app.message_types)
        try:
            if not parts:
                empty = OutcomeFileWriter(open_folder(folders.staged(attempt)), types)
                empty.open()
                parts = [empty.close()]
            size = sum(part.size for part in parts)
            if len(parts) > 1 and not folders.moves_whole and size <= MERGED_UP_TO:
                folders.check_written(attempt, parts)
                staged = folders.staged(attempt)
                merge = PartJob(partial(written, staged, [part.name for part in parts]), staged, types)
                metrics = Metrics(is_on=self.options.metrics.is_on, forwards=False)
                for part in parts:
                    metrics.merge(part.metrics)
                with failing_as(BatchFailedError):
                    (merged,) = _parts(self.spark.range(0, 1, 1, 1), merge)
                parts = [merged._replace(metrics=metrics.dump())]
            folders.propose(attempt, parts)
        except (OSError, BatchFailedError) as error:
            return self._by_another(record, error)
        return self.connection.run(self.ledger.choose_attempt(record, attempt))

    def _commit(self, record: BatchRecord, *, is_repeat: bool = False) -> BatchRecord:
        """Make the chosen attempt visible, and commit the round. Too many dead letters raise `BatchHeldBackError`.

        `is_repeat`: the metrics already include the messages of the round, so they are not counted again.
        """
        number, folders = record.rounds, self._folders(record)
        try:
            parts = folders.put_in_place()
            folders.flush(number)
        except OSError as error:
            return self._by_another(record, error)
        counts, routable = totals(parts)
        limit, total = self.options.limit(), Counter(record.counts) + Counter(counts)
        if limit is not None and limit.is_exceeded(total):
            folders.hold_back()
            raise BatchHeldBackError(
                f"Batch {record.batch_id} is held back: {total[Status.DEAD_LETTER]:,} of its deliveries are dead "
                f"letters, more than {limit}. Nothing is published. Its outcomes are in {record.out}; {self.again}, "
                f"now with a higher limit, to publish it, or abandon it."
            )
        self.options.step(f"Round {number}: recording in the ledger")
        committed = self.connection.run(self.ledger.commit_round(record, number, counts, routable))
        for part in () if is_repeat else parts:
            self.options.metrics.merge(part.metrics)
        folders.discard(record.attempt)
        return committed

    def _by_another(self, record: BatchRecord, error: Exception) -> BatchRecord:
        """Return the newer record if another driver committed the round, or raise `BatchFailedError` from `error`."""
        found = self.find(record.batch_id)
        if found is None or found.rounds <= record.rounds:
            raise BatchFailedError(
                f"The outcomes could not be moved to {self._folders(record).round(record.rounds)}: {error}. "
                f"Run the batch again with its id."
            ) from error
        return found

    def _finish(self, record: BatchRecord) -> None:
        """Finish the messages of the last committed round: delete their outputs from the outboxes. Idempotent."""
        if not self.options.has_outbox or record.rounds == 0:
            return
        number = record.rounds - 1
        self.options.step(f"Round {number}: finishing messages")
        with failing_as(BatchFailedError, self._how_to_resume(record)):
            by_entity = (
                self._folders(record)
                .outcomes(number)
                .where(_IS_KNOWN)
                .repartition(self.partitions, "handler", "business_id")
                .groupBy("handler", "business_id")
                .agg(sf.collect_set("message_id").alias("message_ids"))
            )
            finished = by_entity.mapInArrow(self.job(record).finish, "entities long")
            finished.write.format("noop").mode("overwrite").save()

    def result(self, begun: BatchRecord, ended: BatchRecord) -> BatchResult:
        """Return the result of an ended batch. `begun`: the record that `begin` returned."""
        folders = self._folders(ended)
        if begun.is_finished:  # its driver may have crashed before cleaning up
            folders.remove_staging()
            damaged = folders.damaged()
            if damaged is not None:
                raise BatchRefusedError(
                    f"Batch {ended.batch_id} is published, but its outcomes in {damaged} were deleted or changed: "
                    "restore them, or run its input under another id. Its messages are duplicates then, and give "
                    "the same outputs."
                )
        return BatchResult(ended, folders.outcomes(), begun.is_finished)

    def _how_to_resume(self, record: BatchRecord) -> str:
        return f"Batch {record.batch_id} has failed, and nothing is lost: {self.again}."

    def _folders(self, record: BatchRecord) -> BatchFolders:
        return BatchFolders(self.spark, record)


def _parts(rows: DataFrame, job: PartJob) -> Sequence[OutcomeFile]:
    return [OutcomeFile(**row.asDict()) for row in rows.mapInArrow(job.run, PART).collect()]


def published_outputs(outcomes: DataFrame) -> DataFrame:
    """Return the outputs of each outcome as a message log. `outcomes` may also be a streaming DataFrame.

    If a message was redelivered in a later round or epoch, its outputs are repeated with the same ids.
    """
    return outcomes.selectExpr("inline(outputs)")


def outputs(outcomes: DataFrame) -> DataFrame:
    """Return the outputs of a batch as a message log, with one row for each message id."""
    return published_outputs(outcomes).dropDuplicates(["message_id"])


def dead_letters(outcomes: DataFrame) -> DataFrame:
    """Return the dead letters of a batch: reason, error and original delivery."""
    return outcomes.where(sf.col("status") == Status.DEAD_LETTER.value).drop("version", "outputs")


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """The numbers of deliveries and outputs with the same round, handler, status and reason."""

    round: int
    handler: str | None
    status: str
    reason: str | None
    count: int
    outputs: int


def count_outcomes(outcomes: DataFrame) -> list[OutcomeCount]:
    """Count the outcomes of a batch by round, handler, status and reason. Reads the outcomes once."""
    counted = outcomes.groupBy("round", "handler", "status", "reason").agg(
        sf.count("*").alias("count"), sf.sum(sf.coalesce(sf.size("outputs"), sf.lit(0))).alias("outputs")
    )
    found = [OutcomeCount(**row.asDict()) for row in counted.collect()]
    return sorted(found, key=lambda each: (each.round, each.handler or "", each.status, each.reason or ""))


def dead_letter_groups(outcomes: DataFrame, limit: int) -> list[DeadLetters]:
    """Group dead letters by reason, handler, type and error text. Return the `limit` largest groups.

    Quoted values and numbers in the text are ignored.
    """
    alike = sf.regexp_replace("error", VARYING, "").alias("alike")
    ids = sf.array_distinct(sf.array_compact(sf.array(sf.min("message_id"), sf.max("message_id"))))
    grouped = (
        dead_letters(outcomes)
        .groupBy("reason", "handler", "type", alike)
        .agg(sf.min("error").alias("error"), sf.count("*").alias("count"), ids.alias("message_ids"))
        .orderBy(sf.desc("count"), "reason", "error")
        .drop("alike")
    )
    return [DeadLetters(**row.asDict()) for row in grouped.limit(limit).collect()]
