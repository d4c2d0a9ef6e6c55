"""Batches: run the handlers of an app over a message log, round by round.

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
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from handlers import App
from handlers.guard import guarded
from runtime.algorithms.algorithm import AT_ONCE
from runtime.algorithms.letters.wanted import Wanted
from runtime.batches.context import BatchContext
from runtime.batches.ledger import Ledger
from runtime.batches.record import BatchRecord
from runtime.clock import cut_off
from runtime.errors import BatchFailedError, BatchHeldBackError, UsageError
from runtime.messages.outcome import Status
from runtime.spark.batch_options import BatchOptions
from runtime.spark.beginning import Probe, check_folder, check_session, check_workers
from runtime.spark.folders import BatchFolders, absolute_folder, check_unused
from runtime.spark.logs.inputs import describe_input
from runtime.spark.logs.log import normalise, read_log
from runtime.spark.logs.routing import route
from runtime.spark.passes import Work, finish, unfinished
from runtime.spark.redriven import RedrivenLetters
from runtime.spark.sessions.failures import SPARK_FAILURES, explain
from runtime.spark.sessions.settings import job_settings
from runtime.spark.workers.connection import Connection, TablePlace, check_reach, open_table
from runtime.spark.workers.job import FoldJob
from runtime.spark.workers.parts import PART, Part, PartJob, totals

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


def run_batch(
    spark: SparkSession,
    messages: DataFrame | str,
    app: App,
    *,
    store: str,
    table: str,
    out: str,
    batch_id: str | None = None,
    **options: Any,  # noqa: ANN401 - the fields of BatchOptions
) -> DataFrame:
    """Run a batch to its end and return a DataFrame that scans the outcomes that were written.

    `messages` is the path of a log, or a DataFrame with its columns: message_id, type, body, and optionally
    business_id, sequence, enqueued_at, headers, handler. There is one row for each delivery and handler, see
    `runtime.spark.schemas.OUTCOME`. `options` are the fields of `BatchOptions`. Costs one query and one
    transaction for each stream of a round.

    Run a failed batch again with its id to resume it; a published batch returns its outcomes without running.
    Raises `UsageError` for what cannot be run, and `BatchFailedError` when the work stopped.
    """
    return Batch(spark, app, store, table, out, BatchOptions(**options)).run(messages, batch_id).outcomes


def outputs(outcomes: DataFrame) -> DataFrame:
    """Return what a batch published, as a message log: each output once."""
    found = outcomes.select(sf.explode("outputs").alias("output")).select("output.*")
    return found.dropDuplicates(["message_id"])


def dead_letters(outcomes: DataFrame) -> DataFrame:
    """Return the dead letters: reason, error, and the delivery as it was."""
    return outcomes.where(sf.col("status") == Status.DEAD_LETTER.value).drop("version", "outputs")


def new_batch_id() -> str:
    """Return a new batch id, which begins with the time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


@dataclass
class Batch:
    """Runs batches of one app into one table."""

    spark: SparkSession
    app: App
    store: str = field(repr=False)
    table: str
    out: str
    options: BatchOptions = field(default_factory=BatchOptions)

    def run(self, messages: DataFrame | str, batch_id: str | None = None) -> BatchResult:
        """Run the rounds that are not committed yet, publish, and return the outcomes."""
        check_session(self.spark)
        with job_settings(self.spark, messages):
            given = self._open(messages)
            log = normalise(given, self.options.source)
            what = describe_input(given, messages if isinstance(messages, str) else None)
            return self._run(self._connect(), batch_id, what, lambda job: self._handle(job, log))

    def sweep(self, older_than: timedelta = AT_ONCE, batch_id: str | None = None) -> BatchResult:
        """Publish outputs whose worker died and whose message will not be redelivered.

        These are the outputs still in outboxes, of single messages handled at least `older_than` ago, and of abandoned
        batches. A sweep is a batch whose outcomes are duplicates with their outputs; with `cascade` these are handled
        too. Costs one request for each 1,000 entities, and three for each that has something left. Raises `UsageError`
        with the state-based algorithm, which stores no outputs.
        """
        if not self.options.has_outbox:
            message = (
                "State-based, no outputs are stored that could be swept: run the messages again, or the batch that "
                "died with its id."
            )
            raise UsageError(message)
        check_session(self.spark)
        latest = cut_off(self.options.clock, older_than)
        what = f"what was left behind {older_than} ago"
        with job_settings(self.spark):
            first = partial(unfinished, self.spark, latest=latest, partitions=self._partitions())
            return self._run(self._connect(), batch_id, what, first)

    def redrive(self, wanted: Wanted, batch_id: str | None = None) -> BatchResult:
        """Handle letters again: those that are wanted now, or with which the batch of this id began.

        Costs what it costs to find them, and one query and one transaction for each stream that has some. Raises
        `UsageError` when there are none.
        """
        check_session(self.spark)
        connection, algorithm = self._connect(), self.options.described_algorithm()
        connection.run(Ledger(connection.table, self.options.clock).check_algorithm(algorithm))
        letters = RedrivenLetters(absolute_folder(self.out), batch_id or new_batch_id())
        with job_settings(self.spark):
            if not self._are_chosen(connection, letters):
                connection.run(letters.freeze(connection.table, self.app, wanted))
            first = partial(letters.work, self.spark, partitions=self._partitions())
            try:
                result = self._run(connection, letters.batch_id, f"letters in {letters.path}", first)
            except UsageError:
                self._forget(connection, letters)
                raise
        connection.run(letters.finish(connection.table))
        return result

    def _forget(self, connection: Connection, letters: RedrivenLetters) -> None:
        """Delete the letters of a redrive that was refused before it stood in the ledger."""
        if connection.run(Ledger(connection.table, self.options.clock).find(letters.batch_id)) is None:
            letters.remove()

    def _are_chosen(self, connection: Connection, letters: RedrivenLetters) -> bool:
        """Say whether an earlier attempt chose the letters of a redrive. Raises `UsageError` when they are lost."""
        if letters.are_frozen:
            return True
        record = connection.run(Ledger(connection.table, self.options.clock).find(letters.batch_id))
        if record is not None and not record.is_finished:
            message = (
                f"The letters of batch {letters.batch_id} are no longer in {letters.path}: abandon the batch, and "
                f"redrive with a new one."
            )
            raise UsageError(message)
        return record is not None

    def _run(self, connection: Connection, batch_id: str | None, what: str, first: Round) -> BatchResult:
        """Run the rounds of a batch that are not committed yet; `first` gives the outcomes of the first."""
        ledger = Ledger(connection.table, self.options.clock)
        algorithm = self.options.described_algorithm()
        connection.run(ledger.check_algorithm(algorithm))
        out, other = absolute_folder(self.out), self.options.other_table
        begun = None if batch_id is None else connection.run(ledger.find(batch_id))
        if batch_id is not None and begun is None:
            check_unused(out, batch_id)
        if begun is None or not begun.is_finished:
            check_folder(self.spark, out)
            check_workers(self.spark, Probe(self.app, self._states(), other and other.for_workers()))
        input_ = f"{what}; handlers {', '.join(sorted(self.app.handlers))}; {self.options.described()}"
        record = connection.run(ledger.begin(batch_id or new_batch_id(), input_, out, algorithm))
        if record.is_finished:
            return BatchResult(record, self._folders(record).outcomes(), was_published=True)
        record = self._run_rounds(connection, ledger, record, first)
        record = connection.run(ledger.publish(record))
        folders = self._folders(record)
        folders.remove_staging()
        return BatchResult(record, folders.outcomes(), was_published=False)

    def _run_rounds(
        self, connection: Connection, ledger: Ledger, record: BatchRecord, first: Round
    ) -> BatchRecord:
        self._finish(connection, ledger, record)
        while not self._is_done(record):
            number = record.rounds
            if number >= self.options.max_rounds:
                message = (
                    f"The cascade of batch {record.batch_id} has not ended after {number} rounds. Run it again with "
                    f"its id and a higher --max-rounds, or look for handlers that answer each other for ever."
                )
                raise BatchFailedError(message)
            folders = self._folders(record)
            if folders.is_in_place(number):
                self.options.step(f"Round {number}: counting outcomes")
                parts = folders.parts(number, tuple(self.app.message_types))
            else:
                round_ = first if number == 0 else self._next_round(record)
                parts = self._run_round(connection, ledger, record, round_)
            self._check_dead_letters(record, totals(parts)[0])
            folders.flush(number)
            self.options.step(f"Round {number}: recording in the ledger")
            record = connection.run(ledger.commit_round(record, number, *totals(parts)))
            self._finish(connection, ledger, record)
        return record

    def _check_dead_letters(self, record: BatchRecord, counts: Mapping[str, int]) -> None:
        """Raise `BatchHeldBackError` when there are too many with those of the round that has these counts."""
        limit = self.options.limit()
        total = Counter(record.counts) + Counter(counts)
        if limit is not None and limit.is_exceeded(total):
            message = (
                f"Batch {record.batch_id} is held back: {total[Status.DEAD_LETTER]:,} of its deliveries are dead "
                f"letters, more than {limit}. Its outcomes are in {record.out}; run it again with its id and a higher "
                f"limit to publish it, or abandon it."
            )
            raise BatchHeldBackError(message)

    def _is_done(self, record: BatchRecord) -> bool:
        if record.rounds == 0:
            return False
        return not self.options.cascade or record.last_routable == 0

    def _next_round(self, record: BatchRecord) -> Round:
        return lambda job: self._handle(job, self._outputs_of(record, record.rounds - 1))

    def _handle(self, job: FoldJob, messages: DataFrame) -> Work:
        return Work(route(messages, self.app, self._partitions()), job.fold)

    def _job(self, connection: Connection, ledger: Ledger, record: BatchRecord) -> FoldJob:
        options = self.options
        batch = BatchContext(
            record.batch_id,
            connection.run(ledger.open_batches()),
            is_cascade=record.rounds > 0,
            late=options.late,
            on_error=options.on_error,
            on_difference=options.on_difference,
            number=record.number,
        )
        app = guarded(self.app) if options.guard else self.app
        states = self._states()
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
        )

    def _run_round(
        self, connection: Connection, ledger: Ledger, record: BatchRecord, round_: Round
    ) -> Sequence[Part]:
        """Have workers write the outcomes of the next round, put them in place, and return their files."""
        number, types = record.rounds, tuple(self.app.message_types)
        folders = self._folders(record)
        self.options.step(f"Round {number}: handling messages")
        try:
            rows, fold = round_(self._job(connection, ledger, record))
            staged = folders.stage(number)
            written = rows.mapInArrow(PartJob(fold, staged, types).run, PART).collect()
        except SPARK_FAILURES as error:
            raise BatchFailedError(explain(error, record.batch_id)) from error
        self.options.step(f"Round {number}: committing outcomes")
        connection.run(connection.table.barrier())
        return folders.put_in_place(staged, number, [Part(**row.asDict()) for row in written], types)

    def _finish(self, connection: Connection, ledger: Ledger, record: BatchRecord) -> None:
        """Finish the messages of the last round that is committed: the second pass."""
        if not self.options.has_outbox or record.rounds == 0:
            return
        number = record.rounds - 1
        self.options.step(f"Round {number}: finishing messages")
        try:
            finish(
                self._folders(record).outcomes(number),
                self._job(connection, ledger, record),
                self._partitions(),
            )
        except SPARK_FAILURES as error:
            raise BatchFailedError(explain(error, record.batch_id)) from error

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

    def _connect(self) -> Connection:
        connection = open_table(self.store, self.table, self.options.other_table)
        check_reach(connection, self.spark)
        return connection

    def _states(self) -> TablePlace:
        return TablePlace(self.store, self.table).for_workers()

    def _open(self, messages: DataFrame | str) -> DataFrame:
        if isinstance(messages, str):
            return read_log(self.spark, messages, self.options.log_format)
        return messages

    def _folders(self, record: BatchRecord) -> BatchFolders:
        return BatchFolders(self.spark, record)

    def _partitions(self) -> int:
        return self.options.partitions or max(2, 2 * self.spark.sparkContext.defaultParallelism)
