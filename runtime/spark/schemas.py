"""The columns of message logs and outcomes."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

REQUIRED = ("message_id", "type", "body")
OPTIONAL = ("business_id", "sequence", "enqueued_at", "headers", "handler")

OUTPUT = StructType(
    [
        StructField("message_id", StringType()),
        StructField("type", StringType()),
        StructField("body", StringType()),
        StructField("sequence", LongType()),
        StructField("enqueued_at", TimestampType()),
        StructField("headers", MapType(StringType(), StringType())),
    ]
)
"""One output; also the columns of a message log."""

OUTCOME = StructType(
    [
        StructField("message_id", StringType()),
        StructField("type", StringType()),
        StructField("handler", StringType()),
        StructField("business_id", StringType()),
        StructField("status", StringType()),
        StructField("reason", StringType()),
        StructField("error", StringType()),
        StructField("version", LongType()),
        StructField("outputs", ArrayType(OUTPUT)),
        StructField("delivery", StringType()),
    ]
)
"""One outcome. `delivery` is what was not handled: the delivery as JSON with its handler, or the line of the log."""

STORED_OUTCOME = StructType([*OUTCOME.fields, StructField("round", IntegerType())])
"""An outcome as it is read back: with the round of the cascade it belongs to."""

OUTCOMES = StructType([*OUTCOME.fields, StructField("batch_id", StringType()), *STORED_OUTCOME.fields[-1:]])
"""The outcomes of all batches in a folder, with the batch and the round of each: what a stream is to read there."""

FOUND = StructType(
    [
        StructField("handler", StringType()),
        StructField("type", StringType()),
        StructField("verdict", StringType()),
        StructField("business_id", StringType()),
        StructField("message_id", StringType()),
        StructField("error", StringType()),
        StructField("revision", LongType()),
        StructField("version", LongType()),
        StructField("changes", StringType()),
        StructField("deliveries", LongType()),
        StructField("streams", LongType()),
        StructField("outputs", ArrayType(OUTPUT)),
    ]
)
"""Findings of a verification: of one kind, with the first of them; of a kind that differs, one row for each stream.

`changes` are the fields of the next state that differ, as JSON. A row without a verdict holds outputs only.
"""

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_HEADERS = pa.map_(pa.string(), pa.string())

ARROW_OUTPUT = pa.struct(
    [
        ("message_id", pa.string()),
        ("type", pa.string()),
        ("body", pa.string()),
        ("sequence", pa.int64()),
        ("enqueued_at", _TIMESTAMP),
        ("headers", _HEADERS),
    ]
)

ARROW_OUTCOME = pa.schema(
    [
        ("message_id", pa.string()),
        ("type", pa.string()),
        ("handler", pa.string()),
        ("business_id", pa.string()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("error", pa.string()),
        ("version", pa.int64()),
        ("outputs", pa.list_(ARROW_OUTPUT)),
        ("delivery", pa.string()),
    ]
)
"""`OUTCOME` in Arrow's types."""
