"""Redrive dead letters in a batch. The selected dead letters are frozen in a file until the batch is published."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from eventstore import Table
from handlers import App
from runtime import dead_letters
from runtime.batch_options import BatchOptions
from runtime.errors import UsageError
from runtime.file_systems import Folder, open_folder, within
from runtime.messages.envelope import Envelope, pack_envelope
from runtime.messages.outcome import Reason
from runtime.messages.parsing import business_id_of
from runtime.messages.sizes import NOT_KEPT, is_note
from runtime.options import given
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.spark.batch import Batch, BatchResult, Work, new_batch_id
from runtime.spark.commit import read_files
from runtime.spark.session import job_settings
from runtime.spark.worker.job import FoldJob


def redrive(
    spark: SparkSession,
    app: App,
    *,
    store: str,
    table: str,
    out: str,
    where: dead_letters.Selection = dead_letters.Selection(),  # noqa: B008 - is immutable
    edits: Iterable[str] | None = None,
    batch_id: str | None = None,
    **options: Any,  # noqa: ANN401 - the fields of BatchOptions
) -> DataFrame:
    """Redrive dead letters in a batch. Return a DataFrame that scans its outcomes.

    `where`: the dead letters to redrive; by default all, or those that `edits` names. `edits`: JSON lines with edited
    messages, in the format of `consistent letters --export`. The selection is frozen: to resume a failed batch, call
    `redrive` again with its id. Raises `UsageError` if no dead letter is selected.
    """
    batch = Batch(spark, app, store, table, out, given(BatchOptions, options))
    request = dead_letters.RedriveRequest(
        where, dead_letters.Edits(edits or ()), only_edited=where.is_all and edits is not None
    )
    return redrive_letters(batch, request, batch_id).outcomes


def redrive_letters(
    batch: Batch, request: dead_letters.RedriveRequest, batch_id: str | None = None
) -> BatchResult:
    """Redrive the requested dead letters, or the letters that an earlier attempt at this batch has frozen."""
    with job_settings(batch.spark):
        rounds = batch.rounds()
        rounds.check_table()
        letters = RedrivenLetters(rounds.out, batch_id or new_batch_id())
        connection, are_ours = rounds.connection, False
        if not letters.are_frozen:
            record = rounds.find(letters.batch_id)
            if record is None:
                are_ours = connection.run(letters.freeze(connection.table, batch.app, request))
            elif not record.is_finished:
                raise UsageError(
                    f"The letters of batch {letters.batch_id} are missing in {letters.path}: abandon the batch, and "
                    f"redrive with a new one."
                )
        try:
            begun = rounds.begin(letters.batch_id, f"letters in {letters.path}")
        except UsageError:
            if are_ours and rounds.find(letters.batch_id) is None:  # rejected before it was recorded
                letters.remove()
            raise
        ended = begun
        if not begun.is_finished:
            work = letters.work(batch.spark, rounds.job(begun), rounds.partitions)
            ended = rounds.end(begun, work, letters.deliveries)
        if are_ours and begun.is_finished:  # by another driver, with other letters
            letters.remove()
        connection.run(letters.finish(connection.table))
        return rounds.result(begun, ended)


_FILE = "letters.parquet"
_BYTES_AT_ONCE = 2**23
_STREAM = ("handler", "business_id")

_REDRIVEN = pa.schema(
    [
        *((name, pa.string()) for name in _STREAM),
        *((name, pa.int64()) for name in ("letter", "sequence", "enqueued_at")),
        ("delivery", pa.binary()),
        *((name, pa.string()) for name in ("problem", "row", "etag")),
    ]
)
"""A dead letter for one handler. `letter` is its number in its stream, or 2**62 for a letter without a stream."""


@dataclass(frozen=True)
class RedrivenLetters:
    """The dead letters of one redrive, frozen in a hidden folder of `out` until the batch is published."""

    out: str
    batch_id: str

    @property
    def path(self) -> str:
        return within(self.out, "_redrive", self.batch_id, "frozen")

    @property
    def are_frozen(self) -> bool:
        """Whether an attempt at this batch has already selected and frozen the dead letters."""
        return _FILE in self._folder.sizes()

    @property
    def deliveries(self) -> int:
        """The number of deliveries of the frozen dead letters to handlers."""
        with self._folder.read(_FILE) as file:
            return int(parquet.ParquetFile(file).metadata.num_rows)

    async def freeze(self, table: Table, app: App, request: dead_letters.RedriveRequest) -> bool:
        """Freeze the requested dead letters, in constant memory. Return false if another driver was faster.

        Raises `UsageError` if there are none.
        """
        unfinished = self._folder.parent.sub(f"unfinished-{uuid4().hex}")
        unfinished.create()
        rows: list[dict[str, Any]] = []
        count = size = 0
        try:
            with (
                unfinished.write(_FILE) as file,
                parquet.ParquetWriter(file, _REDRIVEN, compression="zstd") as writer,
            ):
                async for found in dead_letters.find_letters(table, request.selection):
                    if not request.takes(found):
                        continue
                    rows += _rows(found, app, request.edits.mended(found))
                    count += 1
                    size += found.letter.size
                    if size > _BYTES_AT_ONCE:
                        writer.write_batch(pa.RecordBatch.from_pylist(rows, _REDRIVEN))
                        rows, size = [], 0
                writer.write_batch(pa.RecordBatch.from_pylist(rows, _REDRIVEN))
            request.edits.check_used()
            if not count:
                raise UsageError(
                    "There are no such letters: list those of the table with `consistent letters`."
                )
            unfinished.flush(_FILE)
            return self._take(unfinished)
        finally:
            unfinished.delete()
            self._delete_if_empty()

    def _take(self, unfinished: Folder) -> bool:
        """Put frozen letters in place, unless another driver has done so. Return whether they are in place."""
        if self.are_frozen:
            return False
        try:
            if unfinished.moves_whole:
                unfinished.move_to(self._folder)
            else:
                unfinished.move_file(_FILE, self._folder)
        except OSError:
            if not self.are_frozen:
                raise
            return False
        self._folder.parent.flush()
        return True

    def work(self, spark: SparkSession, job: FoldJob, partitions: int) -> Work:
        """Return the work of a round that redrives the dead letters of each stream in order."""
        columns = from_arrow_schema(pa.schema(list(_REDRIVEN)[:-2]))
        rows = read_files(spark, [(self.path, _FILE, 0)], columns).repartition(partitions, *_STREAM)
        rows = rows.sortWithinPartitions(*_STREAM, "letter", "sequence", "enqueued_at", "delivery")
        return Work(rows, replace(job, batch=replace(job.batch, is_redrive=True)).redrive)

    async def finish(self, table: Table) -> None:
        """Delete dead letters without a stream, unless they were rejected again. Then delete the frozen letters."""
        retries = RetryPolicy().beside(table)
        if self.are_frozen:
            with self._folder.read(_FILE) as file:
                for batch in parquet.ParquetFile(file).iter_batches(columns=["row", "etag"]):
                    of_table = ((row["row"], row["etag"]) for row in batch.to_pylist() if row["row"])
                    for row, etag in dict.fromkeys(of_table):
                        await until_undisturbed(retries, partial(dead_letters.remove, table, row, etag))
        self.remove()

    def remove(self) -> None:
        self._folder.parent.delete()
        self._delete_if_empty()

    def _delete_if_empty(self) -> None:
        self._folder.parent.delete_if_empty()
        self._folder.parent.parent.delete_if_empty()

    @property
    def _folder(self) -> Folder:
        return open_folder(self.path)


def _rows(found: dead_letters.FoundLetter, app: App, mended: Envelope | None) -> Iterator[dict[str, Any]]:
    """Yield a dead letter's rows: one if it has a stream, else one per handler. `mended`: its edited message."""
    letter = found.letter
    envelope = mended or letter.envelope
    if envelope is None:
        raise AssertionError("A letter that waits has its delivery.")
    row = {
        "letter": letter.number if found.row is None else 2**62,
        "sequence": envelope.sequence,
        "enqueued_at": envelope.enqueued_at,
        "delivery": pack_envelope(envelope),
        "row": found.row,
        "etag": found.etag,
    }
    if found.row is None:
        if found.handler not in app.handlers:
            raise UsageError(
                f"The app has no handler {found.handler} for some of the letters: select those of another "
                "(--handler), or discard them."
            )
        yield {**row, "handler": found.handler, "business_id": found.business_id}
        return
    problem = None
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
