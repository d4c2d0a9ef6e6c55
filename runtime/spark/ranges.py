"""Ranges of partition keys, for jobs over a whole table: each task takes one after another."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator
from dataclasses import astuple
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from eventstore import KeyRange
from eventstore.listing import split_keys
from runtime.spark.sessions.kinds import cores_of
from runtime.spark.workers.connection import Connection

RANGES = StructType([StructField(name, StringType()) for name in ("prefix", "first", "before")])
RANGES_OF_A_CORE = 4


def key_ranges(spark: SparkSession, connection: Connection, keys: AsyncIterable[str]) -> DataFrame:
    """Return ranges that hold about as many of the keys each, and together all keys: four for each core.

    Reads all of the keys, and keeps a sample of them.
    """
    parts = RANGES_OF_A_CORE * cores_of(spark)
    ranges: Any = [astuple(each) for each in connection.run(split_keys(keys, parts))]
    return spark.createDataFrame(ranges, RANGES).repartition(len(ranges))


def ranges_in(batches: Iterable[pa.RecordBatch]) -> Iterator[KeyRange]:
    """Give the ranges that come to a task."""
    for batch in batches:
        for row in batch.to_pylist():
            yield KeyRange(**row)
