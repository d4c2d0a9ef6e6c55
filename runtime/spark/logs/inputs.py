"""The identity of a batch's input: it changes when the content does."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from runtime.errors import LogError
from runtime.spark.sessions.failures import SPARK_FAILURES, explain


def describe_input(log: DataFrame, name: str | None) -> str:
    """Return the number of messages of a log and a checksum of them, in any order. Reads the log once.

    Raises `LogError` for a log without messages, or whose files are damaged.
    """
    where = f" at {name}" if name else ""
    checksum = sf.sum(sf.xxhash64(*map(_hashable, log.schema)).cast("decimal(20,0)"))
    try:
        row = log.agg(sf.count("*").alias("count"), checksum.alias("checksum")).first()
    except SPARK_FAILURES as error:
        message = f"The log{where} cannot be read: {explain(error)}"
        raise LogError(message) from error
    if row is None or row["count"] == 0:
        message = f"The log{where} holds no messages: there is nothing to run."
        raise LogError(message)
    return f"{row['count']} messages with checksum {int(row['checksum']) % 2**64:016x}"


def _hashable(field: StructField) -> Column:
    column = sf.col(f"`{field.name}`")
    return sf.to_json(column) if isinstance(field.dataType, MapType | ArrayType | StructType) else column
