"""Folders that files come into, as streams of messages."""

from __future__ import annotations

from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from runtime.errors import LogError
from runtime.spark.logs.read import lines_of
from runtime.spark.schemas import OUTCOMES
from runtime.spark.sessions.failures import failing_as

_ANY_AGE = "36500d"
"""Spark never reads files that are older than this beside the newest one: by default a week, and without a word."""

SourceFormat = Literal["json", "parquet", "outcomes"]


def published_outputs(outcomes: DataFrame) -> DataFrame:
    """Return what was published, as a message log, row by row: also of a stream that reads the OUT of another one.

    The outputs of a message that was redelivered in a later epoch are there again, with their ids.
    """
    return outcomes.select(sf.explode("outputs").alias("output")).select("output.*")


def open_source(
    spark: SparkSession, folder: str, format_: SourceFormat, max_files: int | None = None
) -> DataFrame:
    """Return the messages of the files that come into a folder, or into folders in it.

    They are JSON lines, Parquet, or outcomes of another stream, whatever their age.
    `max_files` is how many files a micro-batch takes at most. Raises `LogError` when the folder is not there, or has no
    Parquet file yet, whose columns would be those of all.
    """
    reader = spark.readStream.option("maxFileAge", _ANY_AGE)
    if format_ != "outcomes":
        reader = reader.option("recursiveFileLookup", True)
    if max_files is not None:
        reader = reader.option("maxFilesPerTrigger", max_files)
    where = f"The folder {folder} cannot be read as a stream of {format_} files"
    with failing_as(lambda sentence: LogError(f"{where}: {sentence}")):
        if format_ == "json":
            return lines_of(reader.text(folder))
        if format_ == "outcomes":
            return published_outputs(reader.schema(OUTCOMES).parquet(folder))
        schema = spark.read.option("recursiveFileLookup", True).parquet(folder).schema
        return reader.schema(schema).parquet(folder)
