"""What Spark calls for each epoch of a query: its micro-batch is a batch with the id QUERY-EPOCH."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession

from handlers import App
from runtime.batch_options import BatchOptions, TablePlace
from runtime.batches.ledger import Ledger
from runtime.batches.record import BatchRecord, BatchStatus
from runtime.spark.logs.route import group
from runtime.spark.rounds import Rounds, Work
from runtime.spark.sessions.kinds import cores_of
from runtime.spark.sessions.settings import keep_job_settings
from runtime.spark.streaming.admission import Admission
from runtime.spark.streaming.placing import EpochPlaces
from runtime.spark.workers.connection import Connection, open_table
from runtime.spark.workers.job import FoldJob

_START_AGAIN = "start the query again"

PublishEpoch = Callable[[SparkSession, str, str], None]
"""Publishes what is unpublished of a batch whose outcomes are in a folder."""


def no_report(_: BatchRecord) -> None:
    """Say nothing of an epoch that is done."""


@dataclass
class MicroBatches:
    """Runs the micro-batches of a query, whose messages have found their routes: that is planned once for all of them.

    `publish` is called with each epoch that is committed, once more when Spark hands that over again. `done` is called
    with what the ledger has of an epoch that is done. `failure` is what stopped the query: Spark has only its text.
    """

    app: App
    place: TablePlace
    admission: Admission
    places: EpochPlaces
    options: BatchOptions
    done: Callable[[BatchRecord], None] = no_report
    publish: PublishEpoch | None = None
    failure: Exception | None = field(default=None, init=False)
    _is_prepared: bool = field(default=False, init=False)
    _partitions: int = field(default=0, init=False)

    def __call__(self, messages: DataFrame, epoch: int) -> None:
        """Run the micro-batch of an epoch to its end, unless it is published, and put its outcomes in place."""
        try:
            self._run(messages, epoch)
        except Exception as error:
            self.failure = error
            raise

    def show_rest(self) -> None:
        """Put in OUT the published epochs that wait to be merged: once the query has ended, no others will come."""
        self._show_all(self.places)

    def _show_all(self, places: EpochPlaces, end: float = math.inf) -> None:
        ledger = Ledger(self._open().table, self.options.clock)
        places.show_all(lambda epoch: epoch < end and self._is_published(ledger, epoch))

    def _is_published(self, ledger: Ledger, epoch: int) -> bool:
        found = self._open().run(ledger.find(self.admission.batch_id(epoch)))
        return found is None or found.status is BatchStatus.PUBLISHED  # one that is not there was pruned

    def _open(self) -> Connection:
        return open_table(self.place.store, self.place.table, self.options.other_table)

    def _run(self, messages: DataFrame, epoch: int) -> None:
        rounds = self._rounds(messages)
        self._prepare_once(rounds, epoch)
        planned = self.admission.checkpoint.planned(epoch)
        record = self.admission.find(rounds, epoch, planned.content)
        if record is None:
            self.places.check_unused(epoch)
        elif record.status is BatchStatus.ABANDONED:
            self.show_rest()  # nothing comes after it that would
        if record is None or not (record.is_finished or record.rounds):
            self.admission.check_files(epoch, planned)
        if record is None or record.status is not BatchStatus.PUBLISHED:
            record = self._handle(rounds, messages, epoch, self.admission.what(epoch, planned.content))
        if self.publish is not None and (place := self.places.place_of(epoch)) is not None:
            self.publish(messages.sparkSession, record.batch_id, place)
        self.places.show(epoch)
        self.done(record)

    def _prepare_once(self, rounds: Rounds, epoch: int) -> None:
        """Look, before the first epoch after a start, at what is the same for all others."""
        if not self._is_prepared:
            keep_job_settings(rounds.spark)
            rounds.check_table()
            rounds.check_place()
            self._show_elsewhere(rounds, epoch)
            self._is_prepared = True

    def _show_elsewhere(self, rounds: Rounds, epoch: int) -> None:
        """Put in place what waits to be merged in the OUT that the query had before this start, if it had another."""
        before = rounds.find(self.admission.batch_id(epoch - 1)) if epoch else None
        places = None if before is None else self.places.where(before.out)
        if places is not None:
            self._show_all(places, epoch)

    def _handle(self, rounds: Rounds, messages: DataFrame, epoch: int, what: str) -> BatchRecord:
        record = rounds.enter(self.admission.batch_id(epoch), what)
        return rounds.end(record, self._work(rounds, messages, rounds.job(record)))

    def _work(self, rounds: Rounds, messages: DataFrame, job: FoldJob) -> Work:
        job = replace(job, types=self.options.types_of(self.app))
        return Work(group(messages, rounds.partitions), job.fold, is_planned_once=True)

    def _rounds(self, messages: DataFrame) -> Rounds:
        spark = messages.sparkSession
        # A task costs more than the few messages of a micro-batch: each core has one of them.
        self._partitions = self._partitions or self.options.partitions or cores_of(spark)
        options = replace(self.options, partitions=self._partitions)
        return Rounds(
            spark, self.app, self.place, self.places.working, options, self._open(), again=_START_AGAIN
        )
