"""What is too large of a log, kept as it was: a log of its own, that can be run with higher limits."""

from __future__ import annotations

from pyspark.sql import DataFrame

from runtime.messages.limits import MessageLimits
from runtime.spark.logs.log import large_rows


def keep_large(log: DataFrame, limits: MessageLimits, folder: str, name: str) -> str | None:
    """Write the rows of a log that are too large to a folder, and return its path; None when there are none.

    They are JSON lines if the log is, else Parquet. Costs a pass over the log, and another one when there are some.
    What an earlier attempt has written is replaced.
    """
    large = large_rows(log, limits)
    if large.isEmpty():
        return None
    writer = large.write.mode("overwrite")
    if log.columns == ["line"]:
        path = f"{folder}/{name}.jsonl"
        writer.text(path)
    else:
        path = f"{folder}/{name}.parquet"
        writer.parquet(path)
    return path
