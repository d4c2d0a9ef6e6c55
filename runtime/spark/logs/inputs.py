"""The identity of a batch's input: it changes when the content does."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from runtime.errors import LogError
from runtime.spark.logs.contents import read_contents
from runtime.spark.logs.reading import OpenedLog
from runtime.spark.sessions.failures import failing_as


class Input(NamedTuple):
    """What tells a log from others: how many messages it has, and what names them whatever their order."""

    messages: int
    name: str

    def __str__(self) -> str:
        return f"{self.messages} messages with {self.name}"


def describe_input(log: OpenedLog) -> Input:
    """Return what tells a log from others. Reads the log once.

    Files on the disks of this machine are known by a digest of their bytes; all others by their messages. Raises
    `LogError` for a log without messages, or whose files are damaged.
    """
    contents = None if log.files is None else read_contents(log.files)
    if contents is None:
        return describe_messages(log)
    return _unless_empty(log, Input(contents.messages, f"digest {contents.digest}"))


def describe_messages(log: OpenedLog) -> Input:
    """Return what tells a log from others that hold other messages, whatever files they are in. Costs a Spark job.

    Raises `LogError` as `describe_input` does.
    """
    checksum = sf.sum(sf.xxhash64(*map(_hashable, log.rows.schema)).cast("decimal(20,0)"))
    with failing_as(lambda sentence: LogError(f"The log{_where(log)} cannot be read: {sentence}")):
        (row,) = log.rows.agg(sf.count("*").alias("count"), checksum.alias("checksum")).collect()
    return _unless_empty(log, Input(row["count"], f"checksum {int(row['checksum'] or 0) % 2**64:016x}"))


def _unless_empty(log: OpenedLog, found: Input) -> Input:
    if found.messages == 0:
        message = f"The log{_where(log)} holds no messages: there is nothing to run."
        raise LogError(message)
    return found


def _where(log: OpenedLog) -> str:
    return f" at {', '.join(log.paths)}" if log.paths else ""


def _hashable(field: StructField) -> Column:
    column = sf.col(f"`{field.name}`")
    return sf.to_json(column) if isinstance(field.dataType, MapType | ArrayType | StructType) else column
