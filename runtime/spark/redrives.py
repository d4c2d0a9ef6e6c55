"""Letters from Python: as a DataFrame in the form of a log, and a batch that handles them again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from eventstore import Table
from handlers import App
from runtime.algorithms.letters.lines import Edits, Wanted
from runtime.algorithms.letters.of_table import letters_of_table
from runtime.algorithms.letters.reading import StreamLetters, letters_of_stream, streams_with_letters
from runtime.algorithms.letters.selection import Selection
from runtime.spark.batch import Batch
from runtime.spark.batch_options import BatchOptions
from runtime.spark.workers.connection import TablePlace, check_reach, open_table
from runtime.tables.letters import LETTER_COLUMNS, letter_row

_ALL = Selection()
_OF_TABLE = "_letters"

_ARROW = pa.schema(list(LETTER_COLUMNS.items()))

LETTER = from_arrow_schema(_ARROW)
"""A letter: the columns of a log, and what is known of it. `stream` is the business id of its stream.

A body of msgpack bytes is in hexadecimal digits, and `packed` says so.
"""

_STREAM = StructType([StructField("key", StringType()), StructField("waiting", LongType())])


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

    streams = spark.createDataFrame([*connection.run(keys()), (_OF_TABLE, 1)], _STREAM)
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
