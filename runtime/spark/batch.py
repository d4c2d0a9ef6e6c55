"""Batches: run the handlers of an app over a message log, or over what is left in outboxes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from handlers import App
from runtime.algorithms.algorithm import AT_ONCE
from runtime.algorithms.choice import make_outboxes
from runtime.batch_options import BatchOptions, TablePlace, check_app, remark
from runtime.clock import cut_off
from runtime.errors import UsageError
from runtime.messages.outcome import VARYING, DeadLetters, Status
from runtime.options import given
from runtime.spark.commit import absolute_folder
from runtime.spark.logs.normalise import keep_large, normalise, tell_of_struct
from runtime.spark.logs.read import Log, describe_input, open_log
from runtime.spark.logs.route import route
from runtime.spark.rounds import BatchResult, Rounds, Work, new_batch_id, partitions_of
from runtime.spark.session import job_settings
from runtime.spark.worker.connection import open_table
from runtime.spark.worker.job import FoldJob


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
    """Run a batch to its end and return a DataFrame that scans the outcomes that were written.

    `messages` is the path of a log, a list of paths, or a table: a DataFrame of Spark or pandas, or what Arrow reads.
    Its columns are message_id, type, body, and optionally business_id, sequence, enqueued_at, headers, handler. There
    is one row for each delivery and handler, see `runtime.spark.schemas.OUTCOME`. `options` are the fields of
    `BatchOptions`. Costs one query and one transaction for each stream of a round.

    Run a failed batch again with its id to resume it; a published batch returns its outcomes without running.
    Raises `UsageError` for what cannot be run, and `BatchFailedError` when the work stopped.
    """
    return Batch(spark, app, store, table, out, given(BatchOptions, options)).run(messages, batch_id).outcomes


@dataclass
class Batch:
    """Runs batches of one app into one table."""

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
        """Run the rounds that are not committed yet, publish, and return the outcomes."""
        with job_settings(self.spark, messages):
            options, say = self.options, partial(remark, self.options.step)
            opened = open_log(self.spark, messages, options.log_format, say)
            if options.keep_large is not None:
                batch_id = batch_id or new_batch_id()
                options.step("Keeping what is too large")
                keep_large(opened.rows, options.limits, absolute_folder(options.keep_large), batch_id)
            log = normalise(opened.rows, options.source, options.limits)
            types, partitions = options.types_of(self.app), partitions_of(self.spark, options)
            tell_of_struct(opened.rows, self.app, types, say)
            # Java plans on one core, which is most of the time that a small log takes.
            with ThreadPoolExecutor(1, "planning") as beside:
                planned = beside.submit(route, log, self.app, partitions, types=types)
                what = describe_input(opened)
            rounds = self.rounds()
            begun = rounds.begin(batch_id, str(what))
            if begun.is_finished:
                return rounds.result(begun, begun)
            job = replace(rounds.job(begun), types=types)
            ended = rounds.end(begun, Work(planned.result(), job.fold), what.messages)
            return rounds.result(begun, ended)

    def sweep(self, older_than: timedelta = AT_ONCE, batch_id: str | None = None) -> BatchResult:
        """Publish outputs whose worker died and whose message will not be redelivered.

        These are the outputs still in outboxes, of single messages handled at least `older_than` ago, and of abandoned
        batches. A sweep is a batch whose outcomes are duplicates with their outputs; with `cascade` these are handled
        too. Costs one request for each 1,000 entities, and three for each that has something left. Raises `UsageError`
        with the state-based algorithm, which stores no outputs.
        """
        if not self.options.has_outbox:
            raise UsageError(
                "State-based, no outputs are stored that could be swept: run the messages again, or the batch that "
                "died with its id."
            )
        latest = cut_off(self.options.clock, older_than)
        with job_settings(self.spark):
            rounds = self.rounds()
            begun = rounds.begin(batch_id, f"what was left behind {older_than} ago")
            if begun.is_finished:
                return rounds.result(begun, begun)
            job = rounds.job(begun)
            keys = [] if begun.rounds else rounds.connection.run(_unfinished(job))
            entities = self.spark.createDataFrame(keys, "handler string, business_id string")
            work = Work(entities.repartition(rounds.partitions), partial(job.sweep, latest))
            return rounds.result(begun, rounds.end(begun, work))

    def rounds(self) -> Rounds:
        """Open the table, and return what runs the rounds of a batch into it."""
        connection = open_table(self.store, self.table, self.options.other_table, spark=self.spark)
        place = TablePlace(self.store, self.table).for_workers()
        return Rounds(self.spark, self.app, place, absolute_folder(self.out), self.options, connection)


async def _unfinished(job: FoldJob) -> list[tuple[str, str]]:
    """Return handler and business id of each entity that has something pending."""
    found = []
    _, _, dependencies = job.open()
    for handler, batch in make_outboxes(job.options.algorithm, dependencies).items():
        entities = batch.entities
        found += [(handler, entities.business_id(key)) async for key in entities.unfinished()]
    return found


def outputs(outcomes: DataFrame) -> DataFrame:
    """Return what a batch published, as a message log: each output once."""
    found = outcomes.select(sf.explode("outputs").alias("output")).select("output.*")
    return found.dropDuplicates(["message_id"])


def dead_letters(outcomes: DataFrame) -> DataFrame:
    """Return the dead letters: reason, error, and the delivery as it was."""
    return outcomes.where(sf.col("status") == Status.DEAD_LETTER.value).drop("version", "outputs")


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """How many deliveries of a round had the same outcome in a handler, and how many outputs."""

    round: int
    handler: str | None
    status: str
    reason: str | None
    count: int
    outputs: int


def count_outcomes(outcomes: DataFrame) -> list[OutcomeCount]:
    """Count the outcomes of a batch by round, handler, status and reason. Reads them once."""
    counted = outcomes.groupBy("round", "handler", "status", "reason").agg(
        sf.count("*").alias("count"), sf.sum(sf.coalesce(sf.size("outputs"), sf.lit(0))).alias("outputs")
    )
    found = [OutcomeCount(**row.asDict()) for row in counted.collect()]
    return sorted(found, key=lambda each: (each.round, each.handler or "", each.status, each.reason or ""))


def dead_letter_groups(outcomes: DataFrame, limit: int) -> list[DeadLetters]:
    """Return the largest groups of a batch's dead letters. Reads the outcomes once."""
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
