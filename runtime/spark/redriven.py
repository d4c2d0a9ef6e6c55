"""The letters of a redrive, frozen: chosen once, and kept in a file until the batch is published.

A redrive that died goes on with the letters that it began with, though some of them are letters no more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from eventstore import Table
from handlers import App
from runtime.algorithms.letters.lines import Wanted
from runtime.algorithms.letters.of_table import remove
from runtime.algorithms.letters.reading import find_letters
from runtime.algorithms.letters.selection import FoundLetter
from runtime.errors import UsageError
from runtime.file_systems import Folder, open_folder
from runtime.messages.envelope import Envelope
from runtime.messages.letters import pack_envelope
from runtime.messages.outcome import Reason
from runtime.messages.parsing import business_id_of
from runtime.messages.too_large import NOT_KEPT, is_note
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.spark.parquet_files import read_file
from runtime.spark.passes import Work
from runtime.spark.workers.job import FoldJob
from runtime.spark.workers.letters import ARROW_REDRIVEN, BEHIND_ALL
from runtime.storage.letters import Letter
from runtime.urls import within

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
    takers = [route for route in routes if found.handler in (None, route.handler)]
    for route in takers:
        yield {**row, "handler": route.handler, "business_id": business_id_of(route, envelope)}
    if not takers:
        yield {**row, "handler": None if problem else found.handler, "business_id": None, "problem": problem}


def _problem(letter: Letter) -> str | None:
    """Return why a letter of the table that was not mended cannot be handled, None when it may be."""
    if letter.reason is Reason.TOO_LARGE and letter.envelope is not None and is_note(letter.envelope.body):
        return NOT_KEPT
    return letter.error if letter.reason is Reason.INVALID_ENVELOPE else None
