"""The columns of a log of Parquet on the disks of this machine, read from the ends of its files.

Spark starts a job for that, the first of a session, which takes it some time.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from runtime.spark.logs.finding import LogFiles

MOST_FILES = 100
_TYPES: Mapping[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.large_string(): StringType(),
    pa.bool_(): BooleanType(),
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
}
"""Bytes are not among them: a setting of the session says whether Spark reads them as text."""

_UNITS = ("ms", "us")


def schema_of(files: LogFiles) -> StructType | None:
    """Return the schema that Spark would find in the files of a log.

    Returns None where Spark is to look itself: files that are no Parquet, are not on the disks of this machine, are
    more than `MOST_FILES`, are in folders, differ in their columns, cannot be read, or have columns of other types than
    logs have.
    """
    if (
        files.format != "parquet"
        or not files.are_on_disk
        or len(files.files) > MOST_FILES
        or any(files.within)
    ):
        return None
    try:
        first, *others = (parquet.read_schema(file.url) for file in files.files)
    except (OSError, pa.ArrowException):
        return None
    names = {name.lower() for name in first.names}
    if len(names) < len(first.names) or not all(map(first.equals, others)):
        return None
    found = [(field.name, _type_of(field.type)) for field in first]
    fields = [StructField(name, type_) for name, type_ in found if type_ is not None]
    return StructType(fields) if len(fields) == len(found) else None


def _type_of(found: pa.DataType) -> DataType | None:
    """Return the type of Spark as which a column is read, None where that depends on more than its type of Arrow."""
    if pa.types.is_timestamp(found):
        return TimestampType() if found.tz is not None and found.unit in _UNITS else None
    if pa.types.is_map(found):
        key, item = _TYPES.get(found.key_type), _TYPES.get(found.item_type)
        return None if key is None or item is None else MapType(key, item)
    return _TYPES.get(found)
