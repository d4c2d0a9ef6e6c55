"""The identity of a batch's input: it changes when the content does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from runtime.errors import LogError
from runtime.spark.sessions.failures import failing_as


class Input(NamedTuple):
    """What tells a log from others: how many messages it has, and a checksum of them in any order."""

    messages: int
    checksum: int

    def __str__(self) -> str:
        return f"{self.messages} messages with checksum {self.checksum:016x}"


def describe_input(log: DataFrame, paths: Sequence[str] | None = None) -> Input:
    """Return what tells a log from others. Reads the log once.

    Raises `LogError` for a log without messages, or whose files are damaged.
    """
    where = f" at {', '.join(paths)}" if paths else ""
    checksum = sf.sum(sf.xxhash64(*map(_hashable, log.schema)).cast("decimal(20,0)"))
    with failing_as(lambda sentence: LogError(f"The log{where} cannot be read: {sentence}")):
        row = log.agg(sf.count("*").alias("count"), checksum.alias("checksum")).first()
    if row is None or row["count"] == 0:
        message = f"The log{where} holds no messages: there is nothing to run."
        raise LogError(message)
    return Input(row["count"], int(row["checksum"]) % 2**64)


def _hashable(field: StructField) -> Column:
    column = sf.col(f"`{field.name}`")
    return sf.to_json(column) if isinstance(field.dataType, MapType | ArrayType | StructType) else column
