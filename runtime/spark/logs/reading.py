"""Message logs as they are given: paths, DataFrames, and tables of pandas, Arrow, or whatever else Arrow reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from runtime.errors import LogError, UsageError
from runtime.spark.logs.finding import LogFiles, find_files
from runtime.spark.logs.footers import schema_of
from runtime.spark.logs.listing import SessionListing, absolute_path
from runtime.spark.sessions.failures import explain, is_of_spark

Log = DataFrame | str | Path | Sequence[str | Path] | Any
"""A path, a list of paths, a DataFrame of Spark or of pandas, or a table that Arrow can read."""

_OBJECTS = ("body", "headers")


class OpenedLog(NamedTuple):
    """A log as a DataFrame, as it was given; of one that was given by paths, these and the files there."""

    rows: DataFrame
    paths: Sequence[str] = ()
    files: LogFiles | None = None


def open_log(
    spark: SparkSession, log: Log, format_: str | None = None, say: Callable[[str], None] = lambda _: None
) -> OpenedLog:
    """Open a log in whatever form it is given; `say` is told what is not read of it.

    Raises `LogError` when it cannot be read, and `UsageError` for what is no log at all.
    """
    if isinstance(log, DataFrame):
        return OpenedLog(log)
    paths = _paths_of(log)
    if paths is not None:
        files = find_files(SessionListing(spark), paths, format_)
        if files.skipped:
            say(f"Reading the log without {files.skipped}")
        return OpenedLog(_read(spark, paths, files, is_guessed=format_ is None), paths, files)
    if type(log).__module__.partition(".")[0] == "pandas":
        log = _of_pandas(log)
    elif not hasattr(log, "__arrow_c_stream__"):
        message = (
            f"A log is a path, a list of paths, a DataFrame of Spark or pandas, or an Arrow table, not "
            f"{type(log).__name__}."
        )
        raise UsageError(message)
    return OpenedLog(spark.createDataFrame(pa.table(log)))


def read_log(spark: SparkSession, path: str, format_: str | None = None) -> DataFrame:
    """Read the log at a path: Parquet, or JSON lines; by default as the names of its files say.

    Raises `LogError` when there is nothing there.
    """
    return open_log(spark, path, format_).rows


def _paths_of(log: Log) -> Sequence[str] | None:
    """Return the paths of a log, None when it is given as a table."""
    if isinstance(log, str | Path):
        return [str(log)]
    if isinstance(log, list | tuple) and log and all(isinstance(each, str | Path) for each in log):
        return [str(each) for each in log]
    return None


def _read(spark: SparkSession, paths: Sequence[str], files: LogFiles, *, is_guessed: bool) -> DataFrame:
    reader = spark.read.option("recursiveFileLookup", str(files.is_nested).lower())
    places = [absolute_path(path) for path in paths]
    try:
        if files.format == "json":
            lines = reader.text(places)
            return lines.where(sf.trim("value") != "").select(sf.col("value").alias("line"))
        schema = schema_of(files)
        reader = reader if schema is None else reader.schema(schema)
        return reader.format(files.format).load(places)
    except Exception as error:
        if not is_of_spark(error):
            raise
        sentence = _explain(error, ", ".join(paths), files.format)
        may_be_lines = is_guessed and files.format == "parquet" and "Illegal Parquet type" not in sentence
        hint = " If it holds JSON lines, say --format json." if may_be_lines else ""
        raise LogError(f"{sentence}{hint}") from error


def _explain(error: Exception, where: str, format_: str) -> str:
    name = (error.getCondition() or "") if isinstance(error, PySparkException) else ""
    if name == "PATH_NOT_FOUND":
        return f"There is no log at {where}."
    if name.startswith(("UNABLE_TO_INFER_SCHEMA", "CANNOT_INFER")):
        return f"The log at {where} holds no {format_} files."
    hint = (
        " Write its times in microseconds."
        if name == "PARQUET_TYPE_ILLEGAL" and "NANOS" in str(error)
        else ""
    )
    return f"The log at {where} cannot be read as {format_}: {explain(error)}{hint}"


def _of_pandas(log: Any) -> pa.Table:  # noqa: ANN401 - pandas may not be there
    """Return a DataFrame of pandas as Arrow's: missing values are null, and dicts are JSON text with all they hold."""
    changed = {}
    for name in _OBJECTS:
        if name in log.columns and log[name].map(lambda value: isinstance(value, dict)).any():
            changed[name] = log[name].map(_as_json)
    if "sequence" in log.columns and log["sequence"].dtype.kind == "f":
        changed["sequence"] = log["sequence"].convert_dtypes()  # pandas has whole numbers with gaps as floats
    return pa.Table.from_pandas(log.assign(**changed), preserve_index=False)


def _as_json(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value
