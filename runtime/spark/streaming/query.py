"""Streams: run the handlers of an app over a streaming DataFrame, micro-batch by micro-batch."""

from __future__ import annotations

import math
import os
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from handlers import App
from runtime.batch_options import BatchOptions, Step, TablePlace, check_app, remark
from runtime.errors import BatchFailedError, BatchRefusedError, LogError, UsageError
from runtime.file_systems import Folder, open_folder, within
from runtime.ledger.ledger import HIDDEN_EPOCHS, BatchRecord, BatchStatus, Ledger, check_id
from runtime.options import given
from runtime.spark.batch import Rounds, Work
from runtime.spark.commit import absolute_folder
from runtime.spark.logs.normalise import normalise, tell_of_struct
from runtime.spark.logs.read import find_on_disk, is_on_disk, lines_of, literal, open_log, with_later_columns
from runtime.spark.logs.route import find_routes, group
from runtime.spark.session import (
    cores_of,
    explain,
    failing_as,
    is_connect,
    job_settings,
    keep_job_settings,
    master_of,
    unless_gone,
)
from runtime.spark.streaming.admission import Admission, Checkpoint, Owner
from runtime.spark.worker.connection import Connection, check_reach, open_table
from runtime.spark.worker.outcomes import ARROW_OUTCOME, OUTCOMES, SUFFIX, PartFile

if TYPE_CHECKING:
    from runtime.spark.publishing import PublishTo


_MERGED = "_batch-merged"


@dataclass
class EpochPlaces:
    """Where the outcomes of a query's epochs lie: hidden while an epoch is in process, and then in `out` as a whole.

    A micro-batch writes to `OUT/_epochs`, which readers ignore. When it is published, the folder with all of its rounds
    is moved into `OUT` at once. So whoever reads `OUT`, also as a stream, sees whole epochs only.

    Small files are compacted before anyone has seen them: with `compact_after`, that many epochs wait in the hidden
    folder until the outcomes of all are merged into one folder, `OUT/batch_id=QUERY-FIRST..LAST`, which is moved into
    `OUT`. What is in `OUT` never changes, and so no reader sees a row twice or misses one.
    """

    out: str
    query: str
    compact_after: int = 1

    def __post_init__(self) -> None:
        self._moves_whole = open_folder(self.out).moves_whole
        self._is_tidy = False
        if self.compact_after > 1 and not self._moves_whole:
            raise UsageError(
                f"Epochs are compacted only where folders are moved as a whole, which the file system of {self.out} "
                f"does not: leave --compact-after out."
            )

    @property
    def working(self) -> str:
        """Where micro-batches write: OUT itself on an object store, which cannot move a folder."""
        return f"{self.out}/{HIDDEN_EPOCHS}" if self._moves_whole else self.out

    def check_unused(self, epoch: int) -> None:
        """Raise `BatchRefusedError` when OUT has outcomes of an epoch that the ledger does not have."""
        batch_id = f"{self.query}-{epoch}"
        folders = [within(folder, f"batch_id={batch_id}") for folder in {self.out, self.working}]
        if self._is_merged(epoch) or any(open_folder(folder).names() for folder in folders):
            raise BatchRefusedError(
                f"{self.out} holds outcomes of epoch {epoch} of the query {self.query}, which the ledger does not "
                f"have: they are from another store, or were pruned. Nothing was handled. Give query and checkpoint "
                f"new names: messages that were handled before are duplicates then, and change nothing."
            )

    def place_of(self, epoch: int) -> str | None:
        """Return the folder that has those of an epoch: OUT, once they were put there; None when they were merged."""
        if self._folder().sub(f"batch_id={self.query}-{epoch}").exists():
            return self.working
        return None if self._is_merged(epoch) else self.out

    def where(self, working: str) -> EpochPlaces | None:
        """Return the places of the query in another OUT, where its epochs were written before; None when it is this."""
        out = working.removesuffix(f"/{HIDDEN_EPOCHS}")
        return None if out in (working, self.out) else EpochPlaces(out, self.query)

    def show(self, epoch: int) -> None:
        """Put the outcomes of a published epoch in OUT, with those of the epochs before it, when enough wait."""
        self._show(lambda each: each <= epoch, self.compact_after)

    def show_all(self, is_published: Callable[[int], bool]) -> None:
        """Put the outcomes of all published epochs in OUT, however few wait, once the query has ended by itself."""
        self._show(is_published, 1)

    def _show(self, may_be_shown: Callable[[int], bool], fewest: int) -> None:
        if not self._moves_whole:
            return
        self._tidy_once()
        waiting = [each for each in self._waiting() if may_be_shown(each[0])]
        if len(waiting) < fewest:
            return
        out, (first, folder), (last, _) = open_folder(self.out), waiting[0], waiting[-1]
        if len(waiting) == 1:
            _move(folder, out.sub(folder.name))
        else:
            merged = self._merged([each for _, each in waiting])
            _move(merged, out.sub(f"batch_id={self.query}-{first}..{last}"))
            for _, each in waiting:
                each.delete()
        out.flush()

    def _merged(self, waiting: Sequence[Folder]) -> Folder:
        """Write the outcomes of epochs, which may have other rounds, to a hidden folder: one file for each round."""
        made = self._folder().sub(f"_merging-{self.query}-{uuid4().hex}")
        for name in sorted({name for each in waiting for name in each.names() if name[0] != "_"}):
            folder = made.sub(name)
            folder.create()
            file = PartFile(folder, ())
            file.open()
            for source in (each.sub(name) for each in waiting):
                for part in sorted(each for each in source.names() if each.endswith(SUFFIX)):
                    with source.read(part) as opened:
                        for batch in parquet.ParquetFile(opened).iter_batches():
                            file.add(batch.cast(ARROW_OUTCOME))
            file.close()
            folder.touch(_MERGED)
            folder.flush()
        return made

    def _tidy_once(self) -> None:
        """Delete what a driver that was killed has left: epochs that are in OUT merged, and what it did not merge."""
        if self._is_tidy:
            return
        self._is_tidy = True
        for epoch, folder in self._waiting():
            if self._is_merged(epoch):
                folder.delete()
        left = re.compile(rf"_merging-{re.escape(self.query)}-[0-9a-f]{{32}}")
        for name in filter(left.fullmatch, self._folder().names()):
            self._folder().sub(name).delete()

    def _waiting(self) -> list[tuple[int, Folder]]:
        """Return the epochs that are not in OUT with their folders, in their order."""
        pattern = re.compile(rf"batch_id={re.escape(self.query)}-(\d+)")
        folder = self._folder()
        found = ((pattern.fullmatch(name), folder.sub(name)) for name in folder.names())
        return sorted(((int(match[1]), each) for match, each in found if match), key=lambda each: each[0])

    def _is_merged(self, epoch: int) -> bool:
        """Return whether a driver before this one has put an epoch in OUT in a merged folder."""
        return any(epoch in span for span in self._merged_before)

    @cached_property
    def _merged_before(self) -> Sequence[range]:
        pattern = re.compile(rf"batch_id={re.escape(self.query)}-(\d+)\.\.(\d+)")
        matches = filter(None, map(pattern.fullmatch, open_folder(self.out).names()))
        return [range(int(match[1]), int(match[2]) + 1) for match in matches]

    def _folder(self) -> Folder:
        return open_folder(self.working)


def _move(folder: Folder, target: Folder) -> None:
    """Move a folder as a whole, unless another driver of the same epoch was faster."""
    try:
        folder.move_to(target)
    except OSError:
        if not target.exists():
            raise
        with suppress(OSError):
            folder.delete()


_START_AGAIN = "start the query again"

PublishEpoch = Callable[[SparkSession, str, str], object]
"""Publishes what is unpublished of a batch whose outcomes are in a folder."""


AVAILABLE_NOW = "available-now"

Trigger = timedelta | Literal["available-now"] | None
"""How often micro-batches begin: at this interval, one after another, or until all that is there is handled."""

_LOOK_EVERY_SECONDS = 0.2


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
    place, send = TablePlace(store, table).for_workers(), None
    if publish is not None:
        # It needs an event loop, which workers that load this module do without.
        from runtime.spark.publishing import PublishTo  # noqa: PLC0415 - see above

        to = PublishTo(publish) if isinstance(publish, str) else publish
        to.check()
        send = partial(to.publish, place)
    chosen = given(BatchOptions, options)
    stream = Stream(app, place, out, query, checkpoint, compact_after, chosen, publish=send)
    stream.say = partial(remark, chosen.step)
    return stream.start(df, trigger)


@dataclass
class Stream:
    """A query over one app and one table, whose micro-batches are batches with the ids QUERY-EPOCH.

    `publish` is called with each epoch that is committed, once more when Spark hands that over again. `done` is called
    with what the ledger has of an epoch that is done, `say` with what the user should know of the log. `failure` is
    what stopped the query: Spark has only its text.
    """

    app: App
    place: TablePlace
    out: str
    query: str
    checkpoint: str
    compact_after: int = 1
    options: BatchOptions = field(default_factory=BatchOptions)
    done: Callable[[BatchRecord], None] = lambda _: None
    publish: PublishEpoch | None = None
    say: Step = warnings.warn
    failure: Exception | None = field(default=None, init=False)
    _is_prepared: bool = field(default=False, init=False)
    _partitions: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        check_app(self.app)
        check_id(f"{self.query}-{2**63 - 1}")  # with the last epoch that there may be
        if self.compact_after < 1:
            raise UsageError(f"compact_after is a number of epochs from 1, not {self.compact_after}.")
        if self.options.keep_large is not None:
            raise UsageError(
                "A stream keeps only notes of messages that are too large: leave keep_large out."
            )
        self.place = self.place.for_workers()
        self.admission = Admission(self.query, Checkpoint(absolute_folder(self.checkpoint)))
        self.places = EpochPlaces(absolute_folder(self.out), self.query, self.compact_after)

    def start(self, df: DataFrame, trigger: Trigger = None) -> StreamingQuery:
        """Start the query. Raises `UsageError` for what is no stream, and `LogError` for what is no log."""
        spark = df.sparkSession
        if is_connect(spark):
            raise UsageError(
                "Micro-batches are run by the process that has the session, and Spark Connect would run them on its "
                "server: start the stream in a session of this process, such as that of --master or spark-submit."
            )
        if not df.isStreaming:
            raise UsageError(
                "This DataFrame is no stream: make it with spark.readStream, or run it as a batch."
            )
        when = _triggered(trigger)
        connection = self._open()
        check_reach(connection, spark)
        find = Ledger(connection.table, self.options.clock).find
        us = Owner(self.query, connection.store.url, self.place.table)
        self.admission.check_start(us, lambda batch_id: connection.run(find(batch_id)))
        with job_settings(spark):  # of which the query has a copy
            log, types = (
                normalise(df, self.options.source, self.options.limits),
                self.options.types_of(self.app),
            )
            tell_of_struct(df, self.app, types, self.say)
            routed = find_routes(log, self.app, types)
            checkpoint = self.admission.checkpoint.url
            writer = routed.writeStream.queryName(self.query).option("checkpointLocation", checkpoint)
            writer = writer.foreachBatch(self)
            if when:
                writer = writer.trigger(**when)
            return RunningStream(writer.start(), self.show_rest if trigger == AVAILABLE_NOW else None)

    def run(self, df: DataFrame, trigger: Trigger = None) -> None:
        """Start the query, wait until it ends, and stop it when something else ends the waiting, such as Ctrl-C.

        Raises what stopped it.
        """
        query = self.start(df, trigger)
        try:
            with failing_as(BatchFailedError, f"Nothing is lost: {_START_AGAIN}."):
                while query.isActive:  # Ctrl-C is seen in the sleep at once, and not in a call into Java
                    time.sleep(_LOOK_EVERY_SECONDS)
        finally:
            with unless_gone():
                query.stop()
        if self.failure is not None:
            raise self.failure
        failure = query.exception()
        if failure is not None:
            raise BatchFailedError(f"The query {self.query} was stopped: {explain(failure)}")

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
        record = self.admission.find(rounds, epoch, planned)
        if record is None:
            self.places.check_unused(epoch)
        elif record.status is BatchStatus.ABANDONED:
            self.show_rest()  # nothing comes after it that would
        check = partial(self.admission.check_files, epoch, planned)
        if record is None or not (record.is_finished or record.rounds):
            check()
        if record is None or record.status is not BatchStatus.PUBLISHED:
            begun = rounds.enter(self.admission.batch_id(epoch), self.admission.what(epoch, planned))
            job = replace(rounds.job(begun), types=self.options.types_of(self.app))
            work = Work(group(messages, rounds.partitions), job.fold, is_planned_once=True, check=check)
            record = rounds.end(begun, work)
        if self.publish is not None and (place := self.places.place_of(epoch)) is not None:
            self.publish(messages.sparkSession, record.batch_id, place)
        self.places.show(epoch)
        self.done(record)

    def _prepare_once(self, rounds: Rounds, epoch: int) -> None:
        """Check, before the first epoch after a start, what is the same for all others."""
        if self._is_prepared:
            return
        keep_job_settings(rounds.spark)
        rounds.check_table()
        rounds.check_place()
        # What waits to be merged in the OUT that the query had before this start, if it had another, is put there.
        before = rounds.find(self.admission.batch_id(epoch - 1)) if epoch else None
        places = None if before is None else self.places.where(before.out)
        if places is not None:
            self._show_all(places, epoch)
        self._is_prepared = True

    def _rounds(self, messages: DataFrame) -> Rounds:
        spark = messages.sparkSession
        # A task costs more than the few messages of a micro-batch: each core has one of them.
        self._partitions = self._partitions or self.options.partitions or cores_of(spark)
        options = replace(self.options, partitions=self._partitions)
        return Rounds(
            spark, self.app, self.place, self.places.working, options, self._open(), again=_START_AGAIN
        )


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
    raise UsageError(f'A trigger is None, a timedelta, or "{AVAILABLE_NOW}", not {trigger!r}.')


_ANY_AGE = "36500d"
"""Spark never reads files that are older than this beside the newest one: by default a week, and without a word."""

SourceFormat = Literal["json", "parquet", "outcomes"]


def published_outputs(outcomes: DataFrame) -> DataFrame:
    """Return what was published, as a message log, row by row: also of a stream that reads the OUT of another one.

    The outputs of a message that was redelivered in a later epoch are there again, with their ids.
    """
    return outcomes.select(sf.explode("outputs").alias("output")).select("output.*")


def open_source(
    spark: SparkSession,
    folder: str,
    format_: SourceFormat,
    max_files: int | None = None,
    say: Step = warnings.warn,
) -> DataFrame:
    """Return the messages of the files that come into a folder, or into folders in it.

    They are JSON lines, Parquet, or outcomes of another stream, whatever their age.
    `max_files` is how many files a micro-batch takes at most. Raises `LogError` for what `open_log` refuses; Parquet
    needs a file, whose columns have the types of all. Files to come may have optional columns that none has yet.
    """
    path, files = folder, None
    if is_on_disk(folder, master_of(spark)):
        as_ = "json" if format_ == "json" else "parquet"
        files = find_on_disk([folder], as_, may_be_empty=format_ != "parquet")
        path = literal(files.paths[0])
        if files.skipped and format_ != "outcomes":
            say(f"Reading the log without {files.skipped}")
    reader = spark.readStream.option("maxFileAge", _ANY_AGE)
    if max_files is not None:
        reader = reader.option("maxFilesPerTrigger", max_files)
    where = f"The folder {folder} cannot be read as a stream of {format_} files"
    with failing_as(lambda sentence: LogError(f"{where}: {sentence}")):
        if format_ == "outcomes":
            return published_outputs(reader.schema(OUTCOMES).parquet(path))
        if format_ == "json":
            if files is not None and any(map(os.path.getsize, files.files)):
                open_log(spark, folder, format_)  # looks at the first lines
            return lines_of(reader.option("recursiveFileLookup", True).text(path))
        found = open_log(spark, folder, format_)
        is_partitioned = found.files is not None and found.files.is_partitioned
        schema = with_later_columns(found.rows.schema)
        return reader.option("recursiveFileLookup", not is_partitioned).schema(schema).parquet(path)
