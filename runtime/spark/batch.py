"""Batches: run the handlers of an app over a message log, over letters, or over what is left in outboxes."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from handlers import App
from runtime.algorithms.algorithm import AT_ONCE
from runtime.algorithms.letters.lines import Wanted
from runtime.clock import cut_off
from runtime.errors import UsageError
from runtime.messages.outcome import Status
from runtime.spark.batch_options import BatchOptions
from runtime.spark.folders import absolute_folder
from runtime.spark.logs.inputs import describe_input
from runtime.spark.logs.kept import keep_large
from runtime.spark.logs.log import normalise
from runtime.spark.logs.reading import Log, open_log
from runtime.spark.logs.routing import route
from runtime.spark.passes import Work, unfinished
from runtime.spark.redriving import redrive_letters
from runtime.spark.rounds import BatchResult, Rounds, new_batch_id, partitions_of
from runtime.spark.sessions.settings import job_settings
from runtime.spark.workers.connection import TablePlace, check_reach, open_table
from runtime.spark.workers.job import FoldJob


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
    return Batch(spark, app, store, table, out, BatchOptions(**options)).run(messages, batch_id).outcomes


def outputs(outcomes: DataFrame) -> DataFrame:
    """Return what a batch published, as a message log: each output once."""
    found = outcomes.select(sf.explode("outputs").alias("output")).select("output.*")
    return found.dropDuplicates(["message_id"])


def dead_letters(outcomes: DataFrame) -> DataFrame:
    """Return the dead letters: reason, error, and the delivery as it was."""
    return outcomes.where(sf.col("status") == Status.DEAD_LETTER.value).drop("version", "outputs")


@dataclass
class Batch:
    """Runs batches of one app into one table."""

    spark: SparkSession
    app: App
    store: str = field(repr=False)
    table: str
    out: str
    options: BatchOptions = field(default_factory=BatchOptions)

    def run(self, messages: Log, batch_id: str | None = None) -> BatchResult:
        """Run the rounds that are not committed yet, publish, and return the outcomes."""
        with job_settings(self.spark, messages):
            options = self.options
            given = open_log(self.spark, messages, options.log_format, options.step)
            if options.keep_large is not None:
                batch_id = batch_id or new_batch_id()
                options.step("Keeping what is too large")
                keep_large(given.rows, options.limits, absolute_folder(options.keep_large), batch_id)
            log = normalise(given.rows, options.source, options.limits)
            types, partitions = options.types_of(self.app), partitions_of(self.spark, options)
            # Java plans on one core, which is most of the time that a small log takes.
            with ThreadPoolExecutor(1, "planning") as beside:
                planned = beside.submit(route, log, self.app, partitions, types=types)
                what = describe_input(given)
            first = partial(_handle, planned.result(), types)
            return self._rounds().run(batch_id, str(what), first, what.messages)

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
        latest = cut_off(self.options.clock, older_than)
        what = f"what was left behind {older_than} ago"
        with job_settings(self.spark):
            rounds = self._rounds()
            first = partial(unfinished, self.spark, latest=latest, partitions=rounds.partitions)
            return rounds.run(batch_id, what, first)

    def redrive(self, wanted: Wanted, batch_id: str | None = None) -> BatchResult:
        """Handle letters again: those that are wanted now, or with which the batch of this id began.

        Costs what it costs to find them, and one query and one transaction for each stream that has some. Raises
        `UsageError` when there are none.
        """
        with job_settings(self.spark):
            return redrive_letters(self._rounds(), wanted, batch_id or new_batch_id())

    def _rounds(self) -> Rounds:
        connection = open_table(self.store, self.table, self.options.other_table)
        check_reach(connection, self.spark)
        place = TablePlace(self.store, self.table)
        return Rounds(self.spark, self.app, place, self.out, self.options, connection)


def _handle(routed: DataFrame, types: Collection[str] | None, job: FoldJob) -> Work:
    """Return the work on the messages of a log, which may be of these types; None allows all."""
    return Work(routed, replace(job, types=types).fold)
