"""The columns of message logs, outcomes and findings: declared once, in Arrow's types."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

REQUIRED = ("message_id", "type", "body")
OPTIONAL = ("business_id", "sequence", "enqueued_at", "headers", "handler")

_TEXT, _NUMBER = pa.string(), pa.int64()

ARROW_OUTPUT = pa.struct(
    [
        ("message_id", _TEXT),
        ("type", _TEXT),
        ("body", _TEXT),
        ("sequence", _NUMBER),
        ("enqueued_at", pa.timestamp("us", tz="UTC")),
        ("headers", pa.map_(_TEXT, _TEXT)),
    ]
)
"""One output; also the columns of a message log."""

ARROW_OUTCOME = pa.schema(
    [
        *((name, _TEXT) for name in ("message_id", "type", "handler", "business_id")),
        *((name, _TEXT) for name in ("status", "reason", "error")),
        ("version", _NUMBER),
        ("outputs", pa.list_(ARROW_OUTPUT)),
        ("delivery", _TEXT),
    ]
)
"""One outcome. `delivery` is what was not handled: the delivery as JSON with its handler, or the line of the log."""

ARROW_FOUND = pa.schema(
    [
        *((name, _TEXT) for name in ("handler", "type", "verdict", "business_id", "message_id", "error")),
        *((name, _NUMBER) for name in ("revision", "version")),
        ("changes", _TEXT),
        *((name, _NUMBER) for name in ("deliveries", "streams")),
        ("outputs", pa.list_(ARROW_OUTPUT)),
    ]
)
"""Findings of a verification: of one kind, with the first of them; of a kind that differs, one row for each stream.

`changes` are the fields of the next state that differ, as JSON. A row without a verdict holds outputs only.
"""

_ROUND = pa.field("round", pa.int32())

OUTPUT = from_arrow_schema(pa.schema(list(ARROW_OUTPUT)))
OUTCOME = from_arrow_schema(ARROW_OUTCOME)
FOUND = from_arrow_schema(ARROW_FOUND)

STORED_OUTCOME = from_arrow_schema(ARROW_OUTCOME.append(_ROUND))
"""An outcome as it is read back: with the round of the cascade it belongs to."""

OUTCOMES = from_arrow_schema(ARROW_OUTCOME.append(pa.field("batch_id", _TEXT)).append(_ROUND))
"""The outcomes of all batches in a folder, with the batch and the round of each: what a stream is to read there."""
