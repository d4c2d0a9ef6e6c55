"""The rounds of a batch: run those that are not committed yet, commit each, and publish.

In a round, workers handle messages and write the outcomes to files. The driver is told what these hold, puts them in
place, and commits the round in the ledger. With `cascade`, the outputs of a round are the messages of the next. When no
handler takes any of the outputs, the batch is published; a published batch is immutable.

An algorithm with an outbox has a second pass: once the outcomes of a round are committed, which is how a batch
publishes, its messages are finished in their entities, before the next round or the end. A batch that is resumed does
that again for the last round that was committed.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from handlers import App
from handlers.guard import guarded
from runtime.batches.context import BatchContext
from runtime.batches.ledger import Ledger
from runtime.batches.record import BatchRecord
from runtime.documents.opening import portable_url
from runtime.errors import BatchFailedError, BatchHeldBackError
from runtime.messages.outcome import Status
from runtime.spark.batch_options import BatchOptions
from runtime.spark.beginning import Probe, check_folder, check_workers
from runtime.spark.counts import Extent, counted
from runtime.spark.folders import BatchFolders, absolute_folder, check_unused
from runtime.spark.logs.routing import route
from runtime.spark.passes import Work, finish
from runtime.spark.placing import RoundPlacing
from runtime.spark.sessions.failures import failing_as
from runtime.spark.sessions.kinds import cores_of
from runtime.spark.sessions.settings import planned_once
from runtime.spark.workers.connection import Connection, TablePlace
from runtime.spark.workers.job import FoldJob
from runtime.spark.workers.parts import PART, Part, PartJob, totals
from runtime.spark.workers.supervision import Supervision

Round = Callable[[FoldJob], Work]
"""Says what workers do in a round, once it is known what they are told."""


@dataclass(frozen=True)
class BatchResult:
    """A published batch: its row in the ledger and its outcomes.

    `was_published` says that it was published before, and nothing was run.
    """

    record: BatchRecord
    outcomes: DataFrame
    was_published: bool


def new_batch_id() -> str:
    """Return a new batch id, which begins with the time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def partitions_of(spark: SparkSession, options: BatchOptions) -> int:
    """Return how many partitions messages are shuffled to."""
    return options.partitions or max(2, 2 * cores_of(spark))


@dataclass(frozen=True)
class Rounds:
    """Runs the rounds of batches of one app into one table, given by its place and a connection to it.

    `again` says what the user does to go on with a batch that has failed.
    """

    spark: SparkSession
    app: App
    place: TablePlace
    out: str
    options: BatchOptions
    connection: Connection
    again: str = field(default="run it again with its id", kw_only=True)

    @property
    def ledger(self) -> Ledger:
        """The ledger of the batches of the table."""
        return Ledger(self.connection.table, self.options.clock)

    @property
    def partitions(self) -> int:
        """How many partitions messages are shuffled to."""
        return partitions_of(self.spark, self.options)

    def check_table(self) -> None:
        """Raise `UsageError` when the table was processed with another algorithm, or belongs to another app."""
        options = self.options
        check = self.ledger.check_table(options.described_algorithm(), options.claim(self.app))
        self.connection.run(check)

    def find(self, batch_id: str) -> BatchRecord | None:
        """Return what the ledger has of a batch."""
        return self.connection.run(self.ledger.find(batch_id))

    def run(self, batch_id: str | None, what: str, first: Round, messages: int | None = None) -> BatchResult:
        """Run the rounds of a batch that are not committed yet.

        `first` gives the outcomes of the first, which has so many messages, if that is known.
        """
        self.check_table()
        record = self.begin(batch_id, what)
        was_published = record.is_finished
        if was_published:
            self._folders(
                record
            ).remove_staging()  # of a driver that died when it had published, but not yet swept
        else:
            record = self.end(record, first, messages)
        return BatchResult(record, self._folders(record).outcomes(), was_published)

    def end(self, record: BatchRecord, first: Round, messages: int | None = None) -> BatchRecord:
        """Run the rounds of a batch that has begun, as `run` does, and publish it."""
        record = self._run_rounds(record, first, messages)
        self._folders(record).release()
        record = self.connection.run(self.ledger.publish(record))
        self._folders(record).remove_staging()
        return record

    def check_place(self) -> None:
        """Raise `UsageError` when outcomes cannot be written, or the workers cannot do their work."""
        other = self.options.other_table
        check_folder(absolute_folder(self.out))
        check_workers(self.spark, Probe(self.app, self.place.for_workers(), other and other.for_workers()))

    def begin(self, batch_id: str | None, what: str) -> BatchRecord:
        """Begin or resume a batch in the ledger, once it is certain that it can be run."""
        begun = None if batch_id is None else self.find(batch_id)
        if batch_id is not None and begun is None:
            check_unused(absolute_folder(self.out), batch_id)
        if begun is None or not begun.is_finished:
            self.check_place()
        return self.enter(batch_id or new_batch_id(), what)

    def enter(self, batch_id: str, what: str) -> BatchRecord:
        """Begin or resume a batch in the ledger: whether it can be run has been looked at before."""
        input_ = f"{what}; handlers {', '.join(sorted(self.app.handlers))}; {self.options.described()}"
        algorithm, claim = self.options.described_algorithm(), self.options.claim(self.app)
        begin = self.ledger.begin(batch_id, input_, absolute_folder(self.out), algorithm, claim)
        return self.connection.run(begin)

    def _run_rounds(self, record: BatchRecord, first: Round, messages: int | None) -> BatchRecord:
        self._finish(record)
        began_with = messages
        while not self._is_done(record):
            number = record.rounds
            if number >= self.options.max_rounds:
                message = (
                    f"The cascade of batch {record.batch_id} has not ended after {number} rounds. Nothing is lost: "
                    f"{self.again}, now with a higher --max-rounds, or look for handlers that answer each other for "
                    f"ever."
                )
                raise BatchFailedError(message)
            self._check_outputs(record, began_with)
            parts = self._taken_over(record)
            if parts is None:
                if number:
                    first, messages = self._next_round(record), record.last_routable
                record, parts = self._run_round(record, first, messages)
            folders = self._folders(record)
            self._check_dead_letters(record, folders, totals(parts)[0])
            folders.flush(number)
            self.options.step(f"Round {number}: recording in the ledger")
            record = self.connection.run(self.ledger.commit_round(record, number, *totals(parts)))
            self._finish(record)
        return record

    def _how_to_resume(self, record: BatchRecord) -> str:
        return f"Batch {record.batch_id} has failed, and nothing is lost: {self.again}."

    def _check_outputs(self, record: BatchRecord, began_with: int | None) -> None:
        """Raise `BatchFailedError` when a cascade has grown to more outputs than it may have."""
        if not record.rounds:
            return
        if began_with is None:
            counts, _ = totals(self._folders(record).parts(0, ()))
            began_with = sum(counts.values()) - counts["outputs"]
        published, most = record.counts.get("outputs", 0), self.options.max_outputs
        if published > most * began_with:
            message = (
                f"The cascade of batch {record.batch_id} has published {published:,} messages for the {began_with:,} "
                f"that it began with, more than {most:,} for each. Nothing is lost: {self.again}, now with a "
                f"higher --max-outputs, or look for handlers that answer each other with more and more messages."
            )
            raise BatchFailedError(message)

    def _check_dead_letters(
        self, record: BatchRecord, folders: BatchFolders, counts: Mapping[str, int]
    ) -> None:
        """Raise `BatchHeldBackError` when there are too many with those of the round that has these counts."""
        limit = self.options.limit()
        total = Counter(record.counts) + Counter(counts)
        if limit is not None and limit.is_exceeded(total):
            folders.hold_back()
            message = (
                f"Batch {record.batch_id} is held back: {total[Status.DEAD_LETTER]:,} of its deliveries are dead "
                f"letters, more than {limit}. Nothing is published. Its outcomes are in {record.out}; {self.again}, "
                f"now with a higher limit, to publish it, or abandon it."
            )
            raise BatchHeldBackError(message)

    def _is_done(self, record: BatchRecord) -> bool:
        if record.rounds == 0:
            return False
        return not self.options.cascade or record.last_routable == 0

    def _next_round(self, record: BatchRecord) -> Round:
        return lambda job: Work(
            route(self._outputs_of(record, record.rounds - 1), self.app, self.partitions), job.fold
        )

    def _job(self, record: BatchRecord) -> FoldJob:
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
        app = (guarded(self.app) if options.guard else self.app).keyed(settings.draw_key)
        states = self.place.for_workers()
        return FoldJob(
            app,
            states.store,
            states.table,
            batch,
            options.clock,
            options.in_flight,
            options.wrap,
            options.algorithm,
            options.deduplication_store and options.deduplication_store.for_workers(),
            options.token_store and options.token_store.for_workers(),
            supervision=Supervision(options.handler_timeout.total_seconds(), options.worker_memory),
            documents=options.documents and portable_url(options.documents),
        )

    def _taken_over(self, record: BatchRecord) -> Sequence[Part] | None:
        """Return the files of the next round that an earlier driver of the batch has left as a whole, if any."""
        parts = self._folders(record).take_over(record.rounds, tuple(self.app.message_types))
        if parts is not None:
            self.options.step(f"Round {record.rounds}: counting outcomes")
        return parts

    def _run_round(
        self, record: BatchRecord, round_: Round, messages: int | None
    ) -> tuple[BatchRecord, Sequence[Part]]:
        """Have workers write the outcomes of the next round, put them in place, and return their files."""
        number, types = record.rounds, tuple(self.app.message_types)
        folders = self._folders(record)
        self.options.step(f"Round {number}: handling messages")
        extent = Extent(messages)
        with (
            failing_as(BatchFailedError, self._how_to_resume(record)),
            counted(self.spark, extent, self.options.progress) as counts,
        ):
            work = round_(replace(self._job(record), counts=counts))
            extent.streams = work.streams
            attempt = folders.stage(number)
            job = PartJob(work.fold, folders.staged(attempt), types)
            with planned_once(self.spark) if work.is_planned_once else nullcontext():
                parts = _written(work.rows, job)
        self.options.step(f"Round {number}: committing outcomes")
        self.connection.run(self.connection.table.barrier())
        placing = RoundPlacing(folders, types, self._decide, self._written_by_one)
        return placing.put_in_place(attempt, parts)

    def _decide(self, record: BatchRecord, attempt: str) -> BatchRecord:
        return self.connection.run(self.ledger.decide(record, attempt))

    def _written_by_one(self, job: PartJob) -> Sequence[Part]:
        with failing_as(BatchFailedError):
            return _written(self._one_task(), job)

    def _one_task(self) -> DataFrame:
        return self.spark.range(0, 1, 1, 1)

    def _finish(self, record: BatchRecord) -> None:
        """Finish the messages of the last round that is committed: the second pass."""
        if not self.options.has_outbox or record.rounds == 0:
            return
        number = record.rounds - 1
        self.options.step(f"Round {number}: finishing messages")
        with failing_as(BatchFailedError, self._how_to_resume(record)):
            finish(self._folders(record).outcomes(number), self._job(record), self.partitions)

    def _outputs_of(self, record: BatchRecord, number: int) -> DataFrame:
        """Return the outputs of a round, each for the handlers that take it, as a log in its one form.

        What a handler handled in this batch already, because the log held it too, it is not given again.
        """
        found = (
            self._folders(record)
            .outcomes(number)
            .select(sf.explode("outputs").alias("output"))
            .select("output.*")
        )
        taken = found.withColumn("handler", sf.explode(self._handlers_of(sf.col("type"))))
        new = taken.join(self._handled(record), ["message_id", "handler"], "left_anti").select(taken.columns)
        return new.withColumns(dict.fromkeys(("business_id", "problem", "line"), sf.lit(None).cast("string")))

    def _handlers_of(self, type_: Column) -> Column:
        """Return the handlers that take messages of a type, null where there are none."""
        found = sf.lit(None).cast("array<string>")
        for name in self.app.message_types:
            handlers = [route.handler for route in self.app.routes(name)]
            found = sf.when(type_ == name, sf.lit(handlers)).otherwise(found)
        return found

    def _handled(self, record: BatchRecord) -> DataFrame:
        done = (Status.PROCESSED.value, Status.DUPLICATE.value)
        return (
            self._folders(record)
            .outcomes()
            .where(sf.col("status").isin(*done))
            .select("message_id", "handler")
        )

    def _folders(self, record: BatchRecord) -> BatchFolders:
        return BatchFolders(self.spark, record)


def _written(rows: DataFrame, job: PartJob) -> Sequence[Part]:
    """Return the files that tasks have written, of each task those of one attempt."""
    return [Part(**row.asDict()) for row in rows.mapInArrow(job.run, PART).collect()]
