"""The rounds of a batch: run those that are not committed yet, commit each, and publish.

In a round, workers handle messages and write the outcomes to files. The ledger decides which attempt counts, the driver
puts its files in place, and the ledger commits the round (`runtime.spark.commit`). With `cascade`, the outputs of a
round are the messages of the next one. When no handler takes any of the outputs, the batch is published; a published
batch is immutable.

An algorithm with an outbox has a second pass: once the outcomes of a round are committed, which is how a batch
publishes, its messages are finished in their entities, before the next round or the end. A batch that is resumed
repeats that for the last round that was committed.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from handlers import App
from handlers.guard import guarded
from runtime.batch_options import BatchOptions, TablePlace
from runtime.errors import BatchFailedError, BatchHeldBackError, BatchRefusedError
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import BatchRecord, Ledger
from runtime.messages.outcome import Status
from runtime.spark.commit import MERGED_UP_TO, BatchFolders, check_unused
from runtime.spark.logs.route import route
from runtime.spark.preflight import check_folder, check_workers
from runtime.spark.session import cores_of, failing_as, planned_once
from runtime.spark.worker.connection import Connection
from runtime.spark.worker.job import FoldJob
from runtime.spark.worker.outcomes import PART, Fold, Part, PartJob, totals, written


class Work(NamedTuple):
    """What gives the outcomes of a round: rows, and the fold that workers run over each partition of them.

    `is_planned_once` says that nothing that Spark could learn between its stages would change how the rest is run.
    `check` raises when the rows may have changed while they were read.
    """

    rows: DataFrame
    fold: Fold
    is_planned_once: bool = False
    check: Callable[[], None] = lambda: None


_KNOWN = (Status.PROCESSED.value, Status.DUPLICATE.value)


@dataclass(frozen=True)
class BatchResult:
    """A published batch: its row in the ledger and its outcomes. It is shown as its counts.

    `was_published` says that it was published before, and nothing was run.
    """

    record: BatchRecord
    outcomes: DataFrame
    was_published: bool

    def __repr__(self) -> str:
        counts = [f"{count:,} {name.replace('_', ' ')}" for name, count in self.record.counts.items()]
        when = " before: nothing was run" if self.was_published else ""
        said = ", ".join(counts) or "no messages"
        return f"Batch {self.record.batch_id} was published{when}: {said}, in {self.record.out}"


def new_batch_id() -> str:
    """Return a new batch id, which begins with the time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def partitions_of(spark: SparkSession, options: BatchOptions) -> int:
    """Return how many partitions messages are shuffled to."""
    return options.partitions or max(2, 2 * cores_of(spark))


@dataclass(frozen=True)
class Rounds:
    """Runs the rounds of batches of one app into one table, given by its place and a connection to it.

    Place and folder mean the same in every working directory, and on workers.
    `begin` a batch, `end` it with the work of its first round, and return the `result`. `again` says what the user does
    to resume a batch that has failed.
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

    def check_place(self) -> None:
        """Raise `UsageError` when outcomes cannot be written, or the workers cannot do their work."""
        check_folder(self.out)
        check_workers(self.spark, self.app, self.place, self.options.other_table)

    def find(self, batch_id: str) -> BatchRecord | None:
        """Return what the ledger has of a batch."""
        return self.connection.run(self.ledger.find(batch_id))

    def begin(self, batch_id: str | None, what: str) -> BatchRecord:
        """Begin or resume a batch in the ledger, once it is certain that it can be run."""
        self.check_table()
        begun = None if batch_id is None else self.find(batch_id)
        if batch_id is not None and begun is None:
            check_unused(self.out, batch_id)
        if begun is None or not begun.is_finished:
            self.check_place()
        return self.enter(batch_id or new_batch_id(), what)

    def enter(self, batch_id: str, what: str) -> BatchRecord:
        """Begin or resume a batch in the ledger. Assumes that `check_table` and `check_place` have passed."""
        input_ = f"{what}; handlers {', '.join(sorted(self.app.handlers))}; {self.options.described()}"
        algorithm, claim = self.options.described_algorithm(), self.options.claim(self.app)
        begin = self.ledger.begin(batch_id, input_, self.out, algorithm, claim)
        return self.connection.run(begin)

    def end(self, record: BatchRecord, first: Work, messages: int | None = None) -> BatchRecord:
        """Run the rounds of a batch that are not committed yet, and publish it.

        `first` is the work of the first round, which has so many messages, if that is known.
        """
        record = self._whole(record)
        self._finish(record)
        while record.rounds == 0 or (self.options.cascade and record.last_routable):
            number = record.rounds
            if number >= self.options.max_rounds:
                raise BatchFailedError(
                    f"The cascade of batch {record.batch_id} has not ended after {number} rounds. Nothing is lost: "
                    f"{self.again}, now with a higher --max-rounds, or look for handlers that answer each other for "
                    f"ever."
                )
            if number:
                self._check_outputs(record, messages)
            if not self._folders(record).is_decided():
                work = first if number == 0 else self._next_round(record)
                record = self._decide(record, *self._handle(record, work))
            if record.rounds == number:
                record = self._commit(record)
            self._finish(record)
        damaged = self._folders(record).damaged()
        if damaged is not None:
            raise BatchFailedError(
                f"Outcomes in {damaged} were deleted or changed. {self._how_to_resume(record)}"
            )
        self._folders(record).release()
        record = self.connection.run(self.ledger.publish(record))
        self._folders(record).remove_staging()
        return record

    def result(self, begun: BatchRecord, ended: BatchRecord) -> BatchResult:
        """Return what came of a batch that has ended; `begun` is its record as `begin` returned it."""
        if begun.is_finished:  # its driver may have died when it had published, and not yet swept up
            self._folders(ended).remove_staging()
            damaged = self._folders(ended).damaged()
            if damaged is not None:
                raise BatchRefusedError(
                    f"Batch {ended.batch_id} is published, and its outcomes in {damaged} were deleted or changed "
                    f"since: put them back, or run its input under another id. Its messages are duplicates then, and "
                    f"give the same outputs."
                )
        return BatchResult(ended, self._folders(ended).outcomes(), begun.is_finished)

    def _whole(self, record: BatchRecord) -> BatchRecord:
        """Return a batch whose committed rounds are in OUT; without any, to be run again, when outcomes of one are not.

        Replays give them again. With an outbox nothing does: what a round has published is deleted.
        """
        folders = self._folders(record)
        damaged = folders.damaged()
        if damaged is None:
            return record
        if self.options.has_outbox:
            raise BatchFailedError(
                f"Outcomes in {damaged} were deleted or changed, and with the algorithm {self.options.algorithm} they "
                f"cannot be made again: put back what was there, and run the batch again with its id; or abandon it."
            )
        self.options.step(f"Outcomes in {damaged} were deleted or changed: all rounds are run again")
        record = self.connection.run(self.ledger.begin_again(record))
        folders.remove_rounds()
        return record

    def _handle(self, record: BatchRecord, work: Work) -> tuple[str, Sequence[Part]]:
        """Have workers write the outcomes of the next round; return the attempt and its files."""
        folders = self._folders(record)
        self.options.step(f"Round {record.rounds}: handling messages")
        began, attempt = time.monotonic(), folders.stage()
        job = PartJob(work.fold, folders.staged(attempt), tuple(self.app.message_types))
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

    def _decide(self, record: BatchRecord, attempt: str, parts: Sequence[Part]) -> BatchRecord:
        """Have the ledger decide that an attempt at the next round counts.

        Another driver of the batch may have been faster: then the record has its attempt, or more rounds.
        """
        folders, types = self._folders(record), tuple(self.app.message_types)
        try:
            parts = parts or [folders.write_empty(attempt, types)]
            size = sum(part.size for part in parts)
            if len(parts) > 1 and not folders.moves_whole and size <= MERGED_UP_TO:
                folders.check_written(attempt, parts)
                staged = folders.staged(attempt)
                merge = PartJob(partial(written, staged, [part.name for part in parts]), staged, types)
                with failing_as(BatchFailedError):
                    parts = _parts(self.spark.range(0, 1, 1, 1), merge)
            folders.propose(attempt, parts)
        except (OSError, BatchFailedError) as error:
            return self._by_another(record, error)
        return self.connection.run(self.ledger.decide(record, attempt))

    def _commit(self, record: BatchRecord) -> BatchRecord:
        """Put the decided attempt at the next round in place, and commit the round in the ledger."""
        number, folders = record.rounds, self._folders(record)
        try:
            parts = folders.put_in_place()
        except OSError as error:
            return self._by_another(record, error)
        counts, routable = totals(parts)
        self._check_dead_letters(record, folders, counts)
        folders.flush(number)
        self.options.step(f"Round {number}: recording in the ledger")
        committed = self.connection.run(self.ledger.commit_round(record, number, counts, routable))
        folders.discard(record.attempt)
        return committed

    def _by_another(self, record: BatchRecord, error: Exception) -> BatchRecord:
        """Return the batch when another driver has committed the round, and so deleted the files of this attempt.

        Raises `BatchFailedError` when none has.
        """
        found = self.find(record.batch_id)
        if found is None or found.rounds <= record.rounds:
            raise BatchFailedError(
                f"The outcomes of {self._folders(record).round(record.rounds)} could not be put there: {error}. "
                f"Run the batch again with its id."
            ) from error
        return found

    def job(self, record: BatchRecord) -> FoldJob:
        """Return what the workers of the next round of a batch are told. Costs a request."""
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
        return FoldJob(
            app,
            self.place.store,
            self.place.table,
            batch,
            replace(options, step=BatchOptions.step),  # which would be sent to the workers
            is_supervised=True,
        )

    def _next_round(self, record: BatchRecord) -> Work:
        """Return the work on the outputs of the last round, each for the handlers that take it.

        What a handler handled in this batch already, because the log held it too, it is not given again.
        """
        folders, handlers = self._folders(record), sf.lit(None).cast("array<string>")
        for name in self.app.message_types:
            takers = sf.lit([each.handler for each in self.app.routes(name)])
            handlers = sf.when(sf.col("type") == name, takers).otherwise(handlers)
        found = folders.outcomes(record.rounds - 1).select(sf.explode("outputs").alias("output"))
        taken = found.select("output.*").withColumn("handler", sf.explode(handlers))
        handled = folders.outcomes().where(sf.col("status").isin(*_KNOWN)).select("message_id", "handler")
        new = taken.join(handled, ["message_id", "handler"], "left_anti").select(taken.columns)
        nothing = dict.fromkeys(("business_id", "problem", "line"), sf.lit(None).cast("string"))
        return Work(route(new.withColumns(nothing), self.app, self.partitions), self.job(record).fold)

    def _finish(self, record: BatchRecord) -> None:
        """Finish the messages of the last round that is committed: the second pass. Idempotent."""
        if not self.options.has_outbox or record.rounds == 0:
            return
        number = record.rounds - 1
        self.options.step(f"Round {number}: finishing messages")
        with failing_as(BatchFailedError, self._how_to_resume(record)):
            by_entity = (
                self._folders(record)
                .outcomes(number)
                .where(sf.col("status").isin(*_KNOWN))
                .repartition(self.partitions, "handler", "business_id")
                .groupBy("handler", "business_id")
                .agg(sf.collect_set("message_id").alias("message_ids"))
            )
            finished = by_entity.mapInArrow(self.job(record).finish, "entities long")
            finished.write.format("noop").mode("overwrite").save()

    def _how_to_resume(self, record: BatchRecord) -> str:
        return f"Batch {record.batch_id} has failed, and nothing is lost: {self.again}."

    def _check_outputs(self, record: BatchRecord, began_with: int | None) -> None:
        """Raise `BatchFailedError` when a cascade has grown to more outputs than it may have."""
        if began_with is None:
            began_with = self._folders(record).rows(0)
        published, most = record.counts.get("outputs", 0), self.options.max_outputs
        if published > most * began_with:
            raise BatchFailedError(
                f"The cascade of batch {record.batch_id} has published {published:,} messages for the {began_with:,} "
                f"that it began with, more than {most:,} for each. Nothing is lost: {self.again}, now with a "
                f"higher --max-outputs, or look for handlers that answer each other with more and more messages."
            )

    def _check_dead_letters(
        self, record: BatchRecord, folders: BatchFolders, counts: Mapping[str, int]
    ) -> None:
        """Raise `BatchHeldBackError` when there are too many with those of the round that has these counts."""
        limit = self.options.limit()
        total = Counter(record.counts) + Counter(counts)
        if limit is not None and limit.is_exceeded(total):
            folders.hold_back()
            raise BatchHeldBackError(
                f"Batch {record.batch_id} is held back: {total[Status.DEAD_LETTER]:,} of its deliveries are dead "
                f"letters, more than {limit}. Nothing is published. Its outcomes are in {record.out}; {self.again}, "
                f"now with a higher limit, to publish it, or abandon it."
            )

    def _folders(self, record: BatchRecord) -> BatchFolders:
        return BatchFolders(self.spark, record)


def _parts(rows: DataFrame, job: PartJob) -> Sequence[Part]:
    """Return the files that tasks have written, of each task those of one attempt."""
    return [Part(**row.asDict()) for row in rows.mapInArrow(job.run, PART).collect()]
