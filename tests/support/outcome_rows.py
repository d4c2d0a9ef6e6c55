"""Outcomes as workers give them, made without handlers."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from runtime.spark.worker.outcomes import ARROW_OUTCOME

AT = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


def output(type_: str = "Heard", body: str = "{}") -> dict[str, Any]:
    return {
        "message_id": str(uuid.uuid4()), "type": type_, "body": body,
        "sequence": 1, "enqueued_at": AT, "headers": [("trace", "7")],
    }  # fmt: skip


def outcome(status: str = "processed", outputs: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    return {"message_id": str(uuid.uuid4()), "type": "Said", "status": status, "outputs": list(outputs)}


def batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), ARROW_OUTCOME)


def wide_batch(rows: int, length: int) -> pa.RecordBatch:
    """Return outcomes of which each takes so many bytes."""
    return batch([outcome() | {"delivery": "x" * length}] * rows)
