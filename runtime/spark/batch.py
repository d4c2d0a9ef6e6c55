"""Batches: run the handlers of an app over a message log, over letters, or over what is left in outboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from eventstore import Table
from handlers import App
from runtime.algorithms.algorithm import AT_ONCE
from runtime.algorithms.choice import make_outboxes
from runtime.batch_options import BatchOptions, TablePlace
from runtime.clock import cut_off
from runtime.dead_letters import (
    Edits,
    FoundLetter,
    Selection,
    StreamLetters,
    Wanted,
    find_letters,
    letters_of_stream,
    letters_of_table,
    remove,
    streams_with_letters,
)
from runtime.errors import UsageError
from runtime.file_systems import Folder, open_folder, within
from runtime.messages.envelope import Envelope, pack_envelope
from runtime.messages.limits import NOT_KEPT, is_note
from runtime.messages.outcome import VARYING, DeadLetters, Reason, Status
from runtime.messages.parsing import business_id_of
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.spark.commit import absolute_folder, read_file
from runtime.spark.logs.normalise import keep_large, normalise
from runtime.spark.logs.read import Log, describe_input, open_log
from runtime.spark.logs.route import route
from runtime.spark.rounds import BatchResult, Rounds, Work, new_batch_id, partitions_of
from runtime.spark.session import job_settings
from runtime.spark.worker.connection import check_reach, open_table
from runtime.spark.worker.job import ARROW_REDRIVEN, BEHIND_ALL, FoldJob
from runtime.tables.reader import LETTER_COLUMNS, letter_row
from runtime.versions.dead_letters import Letter

# The letters of a redrive, frozen: chosen once, and kept in a file until the batch is published.
#
# A redrive that died goes on with the letters that it began with, though some of them are letters no more.

_FILE = "letters.parquet"
_UNFINISHED = "unfinished"
_BYTES_AT_ONCE = 2**23
_STREAM = ("handler", "business_id")
_HANDLED = StructType(
    [
        StructField("handler", StringType()),
        StructField("business_id", StringType()),
        StructField("letter", LongType()),
        StructField("sequence", LongType()),
        StructField("enqueued_at", LongType()),
        StructField("delivery", BinaryType()),
        StructField("problem", StringType()),
    ]
)
"""What workers are given of `ARROW_REDRIVEN`."""


@dataclass(frozen=True)
class RedrivenLetters:
    """The letters of one redrive, in a hidden folder of OUT."""

    out: str
    batch_id: str

    @property
    def path(self) -> str:
        """Where they are."""
        return within(self.out, "_redrive", self.batch_id)

    @property
    def are_frozen(self) -> bool:
        """Whether they were chosen by an earlier attempt at this batch."""
        return _FILE in self._folder.sizes()

    @property
    def deliveries(self) -> int | None:
        """How many deliveries they are, each to one handler; None when there is no file of them."""
        from pyarrow import parquet  # noqa: PLC0415 - see below

        if not self.are_frozen:
            return None
        with self._folder.read(_FILE) as file:
            return int(parquet.ParquetFile(file).metadata.num_rows)

    async def freeze(self, table: Table, app: App, wanted: Wanted) -> int:
        """Choose the letters, write them, and return how many there are. Memory does not grow with their number.

        Raises `UsageError` for letters of a handler that the app lacks, and for edits of letters that are not chosen.
        """
        from pyarrow import parquet  # noqa: PLC0415 - takes time, and the command may refuse before

        unfinished = self._folder.sub(_UNFINISHED)
        unfinished.create()
        count = 0
        try:
            with (
                unfinished.write(_FILE) as file,
                parquet.ParquetWriter(file, ARROW_REDRIVEN, compression="zstd") as writer,
            ):
                async for rows, letters in _in_batches(find_letters(table, wanted.selection), app, wanted):
                    count += letters
                    writer.write_batch(pa.RecordBatch.from_pylist(rows, ARROW_REDRIVEN))
            wanted.edits.check_used()
            _check_any(count)
        except BaseException:
            self.remove()
            raise
        unfinished.flush(_FILE)
        unfinished.move_file(_FILE, self._folder)
        self._folder.flush()
        return count

    def work(self, spark: SparkSession, job: FoldJob, partitions: int) -> Work:
        """Return what handles them again, those of each stream in their order."""
        rows = read_file(spark, self.path, _FILE, _HANDLED).repartition(partitions, *_STREAM)
        redriving = replace(job, batch=replace(job.batch, is_redrive=True))
        return Work(_in_order(rows), redriving.redrive)

    async def finish(self, table: Table) -> None:
        """Delete the letters of the table that the batch did not refuse again, and then the file."""
        retries = RetryPolicy().beside(table)
        for row, etag in self._rows_of_table():
            await until_undisturbed(retries, partial(remove, table, row, etag))
        self.remove()

    def remove(self) -> None:
        """Delete the file."""
        self._folder.delete()
        self._folder.parent.delete_if_empty()

    @property
    def _folder(self) -> Folder:
        return open_folder(self.path)

    def _rows_of_table(self) -> Iterator[tuple[str, str]]:
        from pyarrow import parquet  # noqa: PLC0415 - see above

        if not self.are_frozen:
            return
        with self._folder.read(_FILE) as file:
            for batch in parquet.ParquetFile(file).iter_batches(columns=["row", "etag"]):
                yield from dict.fromkeys(
                    (each["row"], each["etag"]) for each in batch.to_pylist() if each["row"]
                )


def _check_any(count: int) -> None:
    if not count:
        raise UsageError("There are no such letters: `consistent letters` lists those of a table.")


def _in_order(rows: DataFrame) -> DataFrame:
    return rows.sortWithinPartitions(*_STREAM, "letter", "sequence", "enqueued_at", "delivery")


async def _in_batches(
    letters: AsyncIterator[FoundLetter], app: App, wanted: Wanted
) -> AsyncIterator[tuple[list[dict[str, Any]], int]]:
    """Give the rows of letters, some at a time, and of how many letters they are."""
    rows: list[dict[str, Any]] = []
    count = size = 0
    async for found in letters:
        if not wanted.takes(found):
            continue
        rows += _rows(found, app, wanted.edits.mended(found))
        count += 1
        size += found.letter.size
        if size > _BYTES_AT_ONCE:
            yield rows, count
            rows, count, size = [], 0, 0
    if count:
        yield rows, count


def _rows(found: FoundLetter, app: App, mended: Envelope | None) -> Iterator[dict[str, Any]]:
    """Give a row for each handler to which a letter goes: for a letter of a stream the stream's own."""
    envelope = mended or found.letter.envelope
    if envelope is None:
        raise AssertionError("A letter that waits has its delivery.")
    row = {
        "letter": found.letter.number if found.row is None else BEHIND_ALL,
        "sequence": envelope.sequence,
        "enqueued_at": envelope.enqueued_at,
        "delivery": pack_envelope(envelope),
        "row": found.row,
        "etag": found.etag,
    }
    if found.row is None:
        if found.handler not in app.handlers:
            raise UsageError(
                f"The app has no handler {found.handler}, which has letters: redrive those of others (--handler), or "
                f"discard them."
            )
        yield {**row, "handler": found.handler, "business_id": found.business_id}
        return
    letter = found.letter
    problem = _problem(letter) if mended is None else None
    routes = [] if problem else app.routes(envelope.type)
    takers = [each for each in routes if found.handler in (None, each.handler)]
    for taker in takers:
        yield {**row, "handler": taker.handler, "business_id": business_id_of(taker, envelope)}
    if not takers:
        yield {**row, "handler": None if problem else found.handler, "business_id": None, "problem": problem}


def _problem(letter: Letter) -> str | None:
    """Return why a letter of the table that was not mended cannot be handled, None when it may be."""
    if letter.reason is Reason.TOO_LARGE and letter.envelope is not None and is_note(letter.envelope.body):
        return NOT_KEPT
    return letter.error if letter.reason is Reason.INVALID_ENVELOPE else None


# A redrive: a batch over letters, which are chosen once and deleted when the batch is published.


def redrive_letters(rounds: Rounds, wanted: Wanted, batch_id: str) -> BatchResult:
    """Handle letters again: those that are wanted now, or with which the batch of this id began.

    Raises `UsageError` when there are none.
    """
    rounds.check_table()
    letters = RedrivenLetters(absolute_folder(rounds.out), batch_id)
    connection = rounds.connection
    if not _are_chosen(rounds, letters):
        connection.run(letters.freeze(connection.table, rounds.app, wanted))
    try:
        begun = rounds.begin(batch_id, f"letters in {letters.path}")
    except UsageError:
        if rounds.find(batch_id) is None:  # it was refused before it stood in the ledger
            letters.remove()
        raise
    ended = begun
    if not begun.is_finished:
        work = letters.work(rounds.spark, rounds.job(begun), rounds.partitions)
        ended = rounds.end(begun, work, letters.deliveries)
    connection.run(letters.finish(connection.table))
    return rounds.result(begun, ended)


def _are_chosen(rounds: Rounds, letters: RedrivenLetters) -> bool:
    """Say whether an earlier attempt chose the letters of a redrive. Raises `UsageError` when they are lost."""
    if letters.are_frozen:
        return True
    record = rounds.find(letters.batch_id)
    if record is not None and not record.is_finished:
        message = (
            f"The letters of batch {letters.batch_id} are no longer in {letters.path}: abandon the batch, and "
            f"redrive with a new one."
        )
        raise UsageError(message)
    return record is not None


_ENTITY = "handler string, business_id string"


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
            rounds = self._rounds()
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
            message = (
                "State-based, no outputs are stored that could be swept: run the messages again, or the batch that "
                "died with its id."
            )
            raise UsageError(message)
        latest = cut_off(self.options.clock, older_than)
        what = f"what was left behind {older_than} ago"
        with job_settings(self.spark):
            rounds = self._rounds()
            begun = rounds.begin(batch_id, what)
            if begun.is_finished:
                return rounds.result(begun, begun)
            job = rounds.job(begun)
            keys = [] if begun.rounds else rounds.connection.run(_unfinished(job))
            entities = self.spark.createDataFrame(keys, _ENTITY).repartition(rounds.partitions)
            ended = rounds.end(begun, Work(entities, partial(job.sweep, latest)))
            return rounds.result(begun, ended)

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


async def _unfinished(job: FoldJob) -> list[tuple[str, str]]:
    """Return handler and business id of each entity that has something pending."""
    found = []
    for handler, batch in make_outboxes(job.algorithm, job.open().dependencies).items():
        entities = batch.entities
        found += [(handler, entities.business_id(key)) async for key in entities.unfinished()]
    return found


# Letters from Python: as a DataFrame in the form of a log, and a batch that handles them again.

_ALL = Selection()
_OF_TABLE = "_letters"

_ARROW = pa.schema(list(LETTER_COLUMNS.items()))

LETTER = from_arrow_schema(_ARROW)
"""A letter: the columns of a log, and what is known of it. `stream` is the business id of its stream.

A body of msgpack bytes is in hexadecimal digits, and `packed` says so.
"""

_STREAM_SCHEMA = StructType([StructField("key", StringType()), StructField("waiting", LongType())])


def redrive(
    spark: SparkSession,
    app: App,
    *,
    store: str,
    table: str,
    out: str,
    where: Selection = _ALL,
    edits: Iterable[str] = (),
    batch_id: str | None = None,
    **options: Any,  # noqa: ANN401 - the fields of BatchOptions
) -> DataFrame:
    """Handle letters again in a batch, and return a DataFrame that scans its outcomes.

    `edits` are JSON lines, as `consistent letters --export` writes them, with messages mended; with them and no
    selection, they choose the letters. Which letters are redriven is decided once: run a redrive that failed again with
    its id to resume it. Raises `UsageError` when there are no such letters.
    """
    batch = Batch(spark, app, store, table, out, BatchOptions(**options))
    mended = Edits(edits)
    wanted = Wanted(where, mended, only_edited=where.is_all and len(mended) > 0)
    return batch.redrive(wanted, batch_id).outcomes


def letters(spark: SparkSession, *, store: str, table: str, where: Selection = _ALL) -> DataFrame:
    """Return the letters of a table, see `LETTER`: they are read by the workers, when the DataFrame is used.

    Which streams have letters is read at once: two requests for each 1,000 streams.
    """
    connection = open_table(store, table, make=False)
    check_reach(connection, spark)

    async def keys() -> list[tuple[str, int]]:
        found = streams_with_letters(connection.table, where)
        return [(stream.key, stream.waiting) async for stream in found]

    streams = spark.createDataFrame([*connection.run(keys()), (_OF_TABLE, 1)], _STREAM_SCHEMA)
    job = LettersJob(TablePlace(store, table).for_workers(), where)
    return streams.mapInArrow(job.run, LETTER)


@dataclass(frozen=True)
class LettersJob:
    """Reads the letters of the streams of a partition."""

    place: TablePlace = field(repr=False)
    where: Selection

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the letters of each stream that comes in."""
        connection = open_table(self.place.store, self.place.table)
        for stream in (row for batch in batches for row in batch.to_pylist()):
            rows = connection.run(self._read(connection.table, stream["key"], stream["waiting"]))
            yield pa.RecordBatch.from_pylist(rows, _ARROW)

    async def _read(self, table: Table, key: str, waiting: int) -> list[Mapping[str, Any]]:
        if key == _OF_TABLE:
            return [letter_row(found) async for found in letters_of_table(table, self.where)]
        found = await letters_of_stream(table, StreamLetters(key, waiting, 0))
        return [letter_row(each) for each in found if self.where.takes(each.handler, each.letter)]


# Counts of outcomes: small results of the DataFrames that batches return.


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
    names = ("round", "handler", "status", "reason")
    counted = outcomes.groupBy(*names).agg(
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


def rows_of(frame: DataFrame, *names: str) -> Iterator[dict[str, object]]:
    """Give the rows of a small DataFrame, each as a dict of the columns named."""
    yield from frame.select(*names).toArrow().to_pylist()
