"""Batches: run the handlers of an app over a message log, over letters, or over what is left in outboxes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from eventstore import Table
from handlers import App
from runtime.algorithms.algorithm import AT_ONCE
from runtime.algorithms.choice import make_outboxes
from runtime.batch_options import BatchOptions, TablePlace, check_app
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
from runtime.options import given
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.spark.commit import absolute_folder, read_file
from runtime.spark.logs.normalise import keep_large, normalise
from runtime.spark.logs.read import Log, describe_input, open_log
from runtime.spark.logs.route import route
from runtime.spark.rounds import BatchResult, Rounds, Work, new_batch_id, partitions_of
from runtime.spark.session import job_settings
from runtime.spark.worker.connection import check_reach, open_table
from runtime.spark.worker.job import FoldJob
from runtime.tables.reader import LETTER_COLUMNS, letter_row


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


def redrive(
    spark: SparkSession,
    app: App,
    *,
    store: str,
    table: str,
    out: str,
    where: Selection = Selection(),  # noqa: B008 - is immutable
    edits: Iterable[str] = (),
    batch_id: str | None = None,
    **options: Any,  # noqa: ANN401 - the fields of BatchOptions
) -> DataFrame:
    """Handle letters again in a batch, and return a DataFrame that scans its outcomes.

    `edits` are JSON lines, as `consistent letters --export` writes them, with messages mended; with them and no
    selection, they choose the letters. Which letters are redriven is decided once: run a redrive that failed again with
    its id to resume it. Raises `UsageError` when there are no such letters.
    """
    batch = Batch(spark, app, store, table, out, given(BatchOptions, options))
    mended = Edits(edits)
    wanted = Wanted(where, mended, only_edited=where.is_all and len(mended) > 0)
    return batch.redrive(wanted, batch_id).outcomes


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
            options = self.options
            opened = open_log(self.spark, messages, options.log_format, options.step)
            if options.keep_large is not None:
                batch_id = batch_id or new_batch_id()
                options.step("Keeping what is too large")
                keep_large(opened.rows, options.limits, absolute_folder(options.keep_large), batch_id)
            log = normalise(opened.rows, options.source, options.limits)
            types, partitions = options.types_of(self.app), partitions_of(self.spark, options)
            # Java plans on one core, which is most of the time that a small log takes.
            with ThreadPoolExecutor(1, "planning") as beside:
                planned = beside.submit(route, log, self.app, partitions, types=types)
                what = describe_input(opened)
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
            raise UsageError(
                "State-based, no outputs are stored that could be swept: run the messages again, or the batch that "
                "died with its id."
            )
        latest = cut_off(self.options.clock, older_than)
        with job_settings(self.spark):
            rounds = self._rounds()
            begun = rounds.begin(batch_id, f"what was left behind {older_than} ago")
            if begun.is_finished:
                return rounds.result(begun, begun)
            job = rounds.job(begun)
            keys = [] if begun.rounds else rounds.connection.run(_unfinished(job))
            entities = self.spark.createDataFrame(keys, "handler string, business_id string")
            work = Work(entities.repartition(rounds.partitions), partial(job.sweep, latest))
            return rounds.result(begun, rounds.end(begun, work))

    def redrive(self, wanted: Wanted, batch_id: str | None = None) -> BatchResult:
        """Handle letters again: those that are wanted now, or with which the batch of this id began.

        Costs what it costs to find them, and one query and one transaction for each stream that has some. Raises
        `UsageError` when there are none.
        """
        with job_settings(self.spark):
            rounds = self._rounds()
            rounds.check_table()
            letters = RedrivenLetters(absolute_folder(self.out), batch_id or new_batch_id())
            connection = rounds.connection
            record = None if letters.are_frozen else rounds.find(letters.batch_id)
            if not letters.are_frozen and record is None:
                connection.run(letters.freeze(connection.table, self.app, wanted))
            elif record is not None and not record.is_finished:
                raise UsageError(
                    f"The letters of batch {letters.batch_id} are no longer in {letters.path}: abandon the batch, and "
                    f"redrive with a new one."
                )
            try:
                begun = rounds.begin(letters.batch_id, f"letters in {letters.path}")
            except UsageError:
                if rounds.find(letters.batch_id) is None:  # it was refused before it stood in the ledger
                    letters.remove()
                raise
            ended = begun
            if not begun.is_finished:
                work = letters.work(self.spark, rounds.job(begun), rounds.partitions)
                ended = rounds.end(begun, work, letters.deliveries)
            connection.run(letters.finish(connection.table))
            return rounds.result(begun, ended)

    def _rounds(self) -> Rounds:
        connection = open_table(self.store, self.table, self.options.other_table)
        check_reach(connection, self.spark)
        place = TablePlace(self.store, self.table).for_workers()
        return Rounds(self.spark, self.app, place, absolute_folder(self.out), self.options, connection)


async def _unfinished(job: FoldJob) -> list[tuple[str, str]]:
    """Return handler and business id of each entity that has something pending."""
    found = []
    for handler, batch in make_outboxes(job.algorithm, job.open().dependencies).items():
        entities = batch.entities
        found += [(handler, entities.business_id(key)) async for key in entities.unfinished()]
    return found


_FILE = "letters.parquet"
_UNFINISHED = "unfinished"
_BYTES_AT_ONCE = 2**23
_STREAM = ("handler", "business_id")

_REDRIVEN = pa.schema(
    [
        ("handler", pa.string()),
        ("business_id", pa.string()),
        ("letter", pa.int64()),
        ("sequence", pa.int64()),
        ("enqueued_at", pa.int64()),
        ("delivery", pa.binary()),
        ("problem", pa.string()),
        ("row", pa.string()),
        ("etag", pa.string()),
    ]
)
"""A letter that is redriven, to one handler.

`letter` is its number in its stream, and behind all of these for a letter of the table, which is in a `row`.
"""

_HANDLED = from_arrow_schema(pa.schema(list(_REDRIVEN)[:-2]))
"""What workers are given of `_REDRIVEN`."""

_BEHIND_ALL = 2**62


@dataclass(frozen=True)
class RedrivenLetters:
    """The letters of one redrive, in a hidden folder of OUT: chosen once, and kept until the batch is published.

    A redrive that died goes on with the letters that it began with, though some of them are letters no more.
    """

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
        rows: list[dict[str, Any]] = []
        count = size = 0
        with ExitStack() as undo:
            undo.callback(self.remove)
            with (
                unfinished.write(_FILE) as file,
                parquet.ParquetWriter(file, _REDRIVEN, compression="zstd") as writer,
            ):
                async for found in find_letters(table, wanted.selection):
                    if not wanted.takes(found):
                        continue
                    rows += _rows(found, app, wanted.edits.mended(found))
                    count += 1
                    size += found.letter.size
                    if size > _BYTES_AT_ONCE:
                        writer.write_batch(pa.RecordBatch.from_pylist(rows, _REDRIVEN))
                        rows, size = [], 0
                writer.write_batch(pa.RecordBatch.from_pylist(rows, _REDRIVEN))
            wanted.edits.check_used()
            if not count:
                raise UsageError("There are no such letters: `consistent letters` lists those of a table.")
            undo.pop_all()
        unfinished.flush(_FILE)
        unfinished.move_file(_FILE, self._folder)
        self._folder.flush()
        return count

    def work(self, spark: SparkSession, job: FoldJob, partitions: int) -> Work:
        """Return what handles them again, those of each stream in their order."""
        rows = read_file(spark, self.path, _FILE, _HANDLED).repartition(partitions, *_STREAM)
        rows = rows.sortWithinPartitions(*_STREAM, "letter", "sequence", "enqueued_at", "delivery")
        return Work(rows, replace(job, batch=replace(job.batch, is_redrive=True)).redrive)

    async def finish(self, table: Table) -> None:
        """Delete the letters of the table that the batch did not refuse again, and then the file."""
        from pyarrow import parquet  # noqa: PLC0415 - see above

        retries = RetryPolicy().beside(table)
        if self.are_frozen:
            with self._folder.read(_FILE) as file:
                for batch in parquet.ParquetFile(file).iter_batches(columns=["row", "etag"]):
                    of_table = ((row["row"], row["etag"]) for row in batch.to_pylist() if row["row"])
                    for row, etag in dict.fromkeys(of_table):
                        await until_undisturbed(retries, partial(remove, table, row, etag))
        self.remove()

    def remove(self) -> None:
        """Delete the file."""
        self._folder.delete()
        self._folder.parent.delete_if_empty()

    @property
    def _folder(self) -> Folder:
        return open_folder(self.path)


def _rows(found: FoundLetter, app: App, mended: Envelope | None) -> Iterator[dict[str, Any]]:
    """Yield a row for each handler to which a letter goes: for a letter of a stream the stream's own."""
    letter = found.letter
    envelope = mended or letter.envelope
    if envelope is None:
        raise AssertionError("A letter that waits has its delivery.")
    row = {
        "letter": letter.number if found.row is None else _BEHIND_ALL,
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
    problem = None  # why a letter that was not mended cannot be handled
    if mended is None and letter.reason is Reason.TOO_LARGE and is_note(envelope.body):
        problem = NOT_KEPT
    elif mended is None and letter.reason is Reason.INVALID_ENVELOPE:
        problem = letter.error
    routes = [] if problem else app.routes(envelope.type)
    takers = [each for each in routes if found.handler in (None, each.handler)]
    for taker in takers:
        yield {**row, "handler": taker.handler, "business_id": business_id_of(taker, envelope)}
    if not takers:
        yield {**row, "handler": None if problem else found.handler, "business_id": None, "problem": problem}


_OF_TABLE = "_letters"
_LETTER = pa.schema(list(LETTER_COLUMNS.items()))

LETTER = from_arrow_schema(_LETTER)
"""A letter: the columns of a log, and what is known of it. `stream` is the business id of its stream.

A body of msgpack bytes is in hexadecimal digits, and `packed` says so.
"""


def letters(
    spark: SparkSession,
    *,
    store: str,
    table: str,
    where: Selection = Selection(),  # noqa: B008 - is immutable
) -> DataFrame:
    """Return the letters of a table, see `LETTER`: they are read by the workers, when the DataFrame is used.

    Which streams have letters is read at once: two requests for each 1,000 streams.
    """
    connection = open_table(store, table, make=False)
    check_reach(connection, spark)

    async def keys() -> list[tuple[str, int]]:
        found = streams_with_letters(connection.table, where)
        return [(stream.key, stream.waiting) async for stream in found]

    streams = spark.createDataFrame([*connection.run(keys()), (_OF_TABLE, 1)], "key string, waiting long")
    return streams.mapInArrow(partial(_letters_of, TablePlace(store, table).for_workers(), where), LETTER)


def _letters_of(
    place: TablePlace, where: Selection, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the letters of each stream that comes in."""
    connection = open_table(place.store, place.table)
    table = connection.table

    async def read(key: str, waiting: int) -> list[FoundLetter]:
        if key == _OF_TABLE:
            return [found async for found in letters_of_table(table, where)]
        found = await letters_of_stream(table, StreamLetters(key, waiting, 0))
        return [each for each in found if where.takes(each.handler, each.letter)]

    for stream in (row for batch in batches for row in batch.to_pylist()):
        yield pa.RecordBatch.from_pylist(list(map(letter_row, connection.run(read(**stream)))), _LETTER)


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
