"""Streams: run the handlers of an app over a streaming DataFrame, micro-batch by micro-batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from handlers import App
from runtime.batch_options import BatchOptions, TablePlace
from runtime.batches.record import BatchRecord, check_id
from runtime.errors import BatchFailedError, UsageError
from runtime.spark.commit import absolute_folder
from runtime.spark.logs.normalise import normalise
from runtime.spark.logs.route import find_routes
from runtime.spark.sessions.failures import explain
from runtime.spark.sessions.kinds import is_connect
from runtime.spark.sessions.settings import job_settings
from runtime.spark.streaming.admission import Admission
from runtime.spark.streaming.checkpoint import Checkpoint
from runtime.spark.streaming.micro_batches import MicroBatches, PublishEpoch, no_report
from runtime.spark.streaming.placing import EpochPlaces
from runtime.spark.workers.connection import check_reach, open_table

if TYPE_CHECKING:
    from runtime.spark.publishing import PublishTo

AVAILABLE_NOW = "available-now"

Trigger = timedelta | Literal["available-now"] | None
"""How often micro-batches begin: at this interval, one after another, or until all that is there is handled."""

_LOOK_EVERY_SECONDS = 0.2
_LAST_EPOCH = 2**63 - 1


def run_stream(
    df: DataFrame,
    app: App,
    *,
    store: str,
    table: str,
    out: str,
    query: str,
    checkpoint: str,
    trigger: Trigger = None,
    compact_after: int = 1,
    publish: str | PublishTo | None = None,
    **options: Any,  # noqa: ANN401 - the fields of BatchOptions
) -> StreamingQuery:
    """Start a query that runs each micro-batch of a streaming DataFrame as a batch, and return it.

    `df` has the columns of a log (see `run_batch`). The batch of an epoch has the id `QUERY-EPOCH`, and its outcomes
    are in `out` as those of any batch, from the moment when it is published. With `compact_after`, the outcomes of that
    many epochs are merged into one folder, and are in `out` from the moment when the last of them is published. With
    `publish`, the outputs of each epoch are sent to a target, before they are in `out` and the next epoch begins.
    `options` are the fields of `BatchOptions`.

    A query that stopped goes on where it was when it is started again with its name and checkpoint: with other handlers
    of the same names, other parallelism or another session too. Costs a micro-batch what it costs a batch.

    Raises `UsageError` for what cannot be run, as on a session of Spark Connect, and `BatchRefusedError` for the
    checkpoint of another query. Spark reports what stops the query later: `query.exception()`.
    """
    place = TablePlace(store, table)
    stream = Stream(
        app,
        place,
        out,
        query,
        checkpoint,
        compact_after,
        BatchOptions(**options),
        publish=None if publish is None else _publisher(publish, place),
    )
    return stream.start(df, trigger)


@dataclass
class Stream:
    """A query over one app and one table, to be started."""

    app: App
    place: TablePlace
    out: str
    query: str
    checkpoint: str
    compact_after: int = 1
    options: BatchOptions = field(default_factory=BatchOptions)
    done: Callable[[BatchRecord], None] = no_report
    publish: PublishEpoch | None = None

    def __post_init__(self) -> None:
        check_id(f"{self.query}-{_LAST_EPOCH}")
        if self.compact_after < 1:
            message = f"compact_after is a number of epochs from 1, not {self.compact_after}."
            raise UsageError(message)
        if self.options.keep_large is not None:
            message = "A stream keeps only notes of messages that are too large: leave keep_large out."
            raise UsageError(message)
        admission = Admission(self.query, Checkpoint(absolute_folder(self.checkpoint)))
        places = EpochPlaces(absolute_folder(self.out), self.query, self.compact_after)
        self.work = MicroBatches(
            self.app, self.place, admission, places, self.options, self.done, self.publish
        )

    def start(self, df: DataFrame, trigger: Trigger = None) -> StreamingQuery:
        """Start the query. Raises `UsageError` for what is no stream, and `LogError` for what is no log."""
        spark = df.sparkSession
        if is_connect(spark):
            message = (
                "Micro-batches are run by the process that has the session, and Spark Connect would run them on its "
                "server: start the stream in a session of this process, such as that of --master or spark-submit."
            )
            raise UsageError(message)
        if not df.isStreaming:
            message = "This DataFrame is no stream: make it with spark.readStream, or run it as a batch."
            raise UsageError(message)
        when = _triggered(trigger)
        check_reach(open_table(self.place.store, self.place.table, self.options.other_table), spark)
        self.work.admission.check_start()
        with job_settings(spark):  # of which the query has a copy
            log = normalise(df, self.options.source, self.options.limits)
            routed = find_routes(log, self.app, self.options.types_of(self.app))
            writer = routed.writeStream.queryName(self.query)
            writer = writer.option("checkpointLocation", self.work.admission.checkpoint.url).foreachBatch(
                self.work
            )
            if when:
                writer = writer.trigger(**when)
            return RunningStream(writer.start(), self.work.show_rest if trigger == AVAILABLE_NOW else None)

    def run(self, df: DataFrame, trigger: Trigger = None) -> None:
        """Start the query, wait until it ends, and stop it when something else ends the waiting, such as Ctrl-C.

        Raises what stopped it.
        """
        query = self.start(df, trigger)
        try:
            while query.isActive:
                time.sleep(
                    _LOOK_EVERY_SECONDS
                )  # Ctrl-C is seen here at once, which a call into Java would not let
        finally:
            query.stop()
        if self.work.failure is not None:
            raise self.work.failure
        failure = query.exception()
        if failure is not None:
            message = f"The query {self.query} was stopped: {explain(failure)}"
            raise BatchFailedError(message)


class RunningStream(StreamingQuery):
    """Spark's query, which does something more when it has ended by itself: before anyone is told that it has.

    With the trigger `"available-now"` what waits to be merged is put in OUT then, as no others will come.
    """

    def __init__(self, query: StreamingQuery, at_end: Callable[[], None] | None) -> None:
        vars(self).update(vars(query))
        self._at_end = at_end
        self._ending = Lock()

    @property
    def isActive(self) -> bool:  # noqa: N802 - the name is Spark's
        """Whether the query runs."""
        return super().isActive or self._end()

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 - the name is Spark's
        """Wait until the query has ended, or for so many seconds; return whether it has, if a time is given."""
        has_ended = super().awaitTermination(timeout)
        if has_ended is not False:
            self._end()
        return has_ended

    def _end(self) -> bool:
        with self._ending:
            at_end, self._at_end = self._at_end, None
            if at_end is not None and self.exception() is None:
                at_end()
        return False


def _triggered(trigger: Trigger) -> Mapping[str, Any]:
    """Return what Spark is told of a trigger. Raises `UsageError` for what is none."""
    if trigger is None:
        return {}
    if trigger == AVAILABLE_NOW:
        return {"availableNow": True}
    if isinstance(trigger, timedelta) and trigger >= timedelta():
        return {"processingTime": f"{trigger / timedelta(milliseconds=1):.0f} milliseconds"}
    message = f'A trigger is None, a timedelta, or "{AVAILABLE_NOW}", not {trigger!r}.'
    raise UsageError(message)


def _publisher(publish: str | PublishTo, place: TablePlace) -> PublishEpoch:
    # It needs an event loop, which workers that load this module do without.
    from runtime.spark.publishing import PublishTo  # noqa: PLC0415 - see above

    to = PublishTo(publish) if isinstance(publish, str) else publish
    to.check()
    return partial(to.publish, place)
