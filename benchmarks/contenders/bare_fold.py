"""`bare-fold`: the least that PySpark must do, so the ceiling of every batch on it.

The same log, shuffle and sort, then a bare `mapInArrow` that decodes each body with the same model, calls the
same handler with a context, and writes an outcome for each message as Parquet. States and ids of handled messages
are in memory while a stream is folded. Durable: nothing; a log that comes in two parts gives wrong states.

This is what a user writes. `bare-fold-parquet` is the same fold with workers that write the Parquet files themselves,
as those of a batch do, so that no outcome goes back to the JVM.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.contenders.spark import SparkContender
from benchmarks.shooting import HANDLER, States, decode, encode_state, handle, initial_state
from handlers import Published, State

_READ = ("message_id", "type", "body", "business_id")
_OUTPUT = pa.struct([("message_id", pa.string()), ("type", pa.string()), ("body", pa.string())])
SCHEMA = pa.schema(
    [
        ("message_id", pa.string()),
        ("type", pa.string()),
        ("handler", pa.string()),
        ("business_id", pa.string()),
        ("status", pa.string()),
        ("version", pa.int64()),
        ("outputs", pa.list_(_OUTPUT)),
        ("final_state", pa.string()),
    ]
)
"""The outcomes."""

_COLUMNS = (
    "message_id string, type string, handler string, business_id string, status string, version long, "
    "outputs array<struct<message_id:string,type:string,body:string>>, final_state string"
)
Row = tuple[str | None, str | None, str, str, str | None, int, list[tuple[str, str, str]], str | None]


class BareFold(SparkContender):
    """Fold a log without a store."""

    durability = "none: states in memory; outcomes as Parquet"

    def work(self) -> None:
        """Fold the log and write the outcomes."""
        messages = ordered(self.spark, self.log.path, self.partitions)
        messages.mapInArrow(fold, _COLUMNS).write.parquet(str(self.folder / "out"))

    def states(self) -> States:
        """Read the states from the last row of each stream."""
        rows = self.spark.read.parquet(str(self.folder / "out")).where("final_state is not null")
        return {row["business_id"]: row["final_state"] for row in rows.collect()}


class BareFoldParquet(BareFold):
    """Fold a log without a store; the workers write the outcomes."""

    durability = "none: states in memory; outcomes as Parquet, by the workers"

    def work(self) -> None:
        """Fold the log, a file for each partition."""
        out = self.folder / "out"
        out.mkdir()
        messages = ordered(self.spark, self.log.path, self.partitions)
        messages.mapInArrow(_FoldToFile(str(out)).run, "rows long").write.format("noop").mode(
            "overwrite"
        ).save()


class _FoldToFile(NamedTuple):
    """Writes what `fold` gives to a file of a folder, and gives the number of rows."""

    folder: str

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the outcomes of a partition."""
        rows = 0
        path = f"{self.folder}/{uuid.uuid4().hex}.parquet"
        with parquet.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
            for outcomes in fold(batches):
                writer.write_batch(outcomes)
                rows += outcomes.num_rows
        yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})


def ordered(spark: SparkSession, log: str, partitions: int) -> DataFrame:
    """Return the messages of a log grouped by game, in their order."""
    game = sf.from_json("body", "struct<game_id:string>").getField("game_id")
    grouped = spark.read.parquet(log).withColumn("business_id", game).repartition(partitions, "business_id")
    return grouped.sortWithinPartitions("business_id", "sequence", "message_id").select(*_READ)


class _Game:
    """One stream while it is folded."""

    def __init__(self, business_id: str) -> None:
        self.business_id = business_id
        self.state: State = initial_state()
        self.seen: set[str] = set()

    def outcome(self, message_id: str, type_: str, body: str) -> Row:
        """Handle one message."""
        if message_id in self.seen:
            return (message_id, type_, HANDLER.name, self.business_id, "duplicate", len(self.seen), [], None)
        self.seen.add(message_id)
        self.state, published = handle(self.state, type_, decode(type_, body), message_id, self.business_id)
        version = len(self.seen)
        return (
            message_id,
            type_,
            HANDLER.name,
            self.business_id,
            "processed",
            version,
            _outputs(published),
            None,
        )

    def end(self) -> Row:
        """Return the row that tells the final state."""
        return (
            None,
            None,
            HANDLER.name,
            self.business_id,
            None,
            len(self.seen),
            [],
            encode_state(self.state),
        )


def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold the streams of a partition: a row for each delivery, and one for each stream with its final state."""
    game: _Game | None = None
    for batch in batches:
        rows: list[Row] = []
        columns: list[list[Any]] = [batch.column(name).to_pylist() for name in _READ]
        for message_id, type_, body, business_id in zip(*columns, strict=True):
            if game is None or game.business_id != business_id:
                if game is not None:
                    rows.append(game.end())
                game = _Game(business_id)
            rows.append(game.outcome(message_id, type_, body))
        yield _to_arrow(rows)
    if game is not None:
        yield _to_arrow([game.end()])


def _outputs(published: list[Published]) -> list[tuple[str, str, str]]:
    return [(output.message_id, output.type, output.body.decode()) for output in published]


def _to_arrow(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
