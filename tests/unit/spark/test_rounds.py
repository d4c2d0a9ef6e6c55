"""A result is shown as its counts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from runtime.ledger.ledger import BatchRecord, BatchStatus
from runtime.spark.batch import BatchResult


def test_a_result_is_shown_as_its_counts():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    counts = {"processed": 4_000, "dead_letter": 3}
    record = BatchRecord("night", "a log", "/out", "t", BatchStatus.PUBLISHED, 1, now, now, counts)

    assert repr(BatchResult(record, None, was_published=False)) == (  # type: ignore[arg-type]
        "Batch night was published: 4,000 processed, 3 dead letter, in /out"
    )
    assert "before: nothing was run: no messages" in repr(
        BatchResult(replace(record, counts={}), None, was_published=True)  # type: ignore[arg-type]
    )
