"""What cannot be handled is the same dead letter with each algorithm, and costs no other message its outcome."""

from __future__ import annotations

import pyarrow as pa
import pytest

from handlers.guard import guarded
from runtime.algorithms.choice import AlgorithmName
from runtime.ledger.batch import BatchContext
from runtime.spark.worker.job import FoldJob
from tests.unit.runtime import diary
from tests.unit.runtime.diary import DIARY, delivery, misbehave, write

LONG = "d" * 1025
DELIVERIES = [
    write("a"),
    delivery("no-line", "Write", {"diary": DIARY}),
    delivery("no-json", "Write", "{"),
    delivery("another", "Write", {"diary": "d-2", "line": "b"}),
    misbehave("fail", "failing"),
    misbehave("draw from outside", "drawing"),
    misbehave("fill the diary", "filling"),
    write("of another line", "a"),
    write("b"),
    write("a"),
]


def fold(folder, algorithm: AlgorithmName, deliveries, business_id=DIARY, **options):
    """Return what came of deliveries for one diary: the id, status and reason, and how many outputs."""
    count = len(deliveries)
    rows = pa.table(
        {
            "handler": ["Diary"] * count,
            "business_id": [business_id] * count,
            "message_id": [each.message_id for each in deliveries],
            "type": [each.type for each in deliveries],
            "body": [each.body for each in deliveries],
            "sequence": pa.array(range(count), pa.int64()),
            "enqueued_at": pa.array([None] * count, pa.timestamp("us", tz="UTC")),
            "headers": pa.array([None] * count, pa.string()),
            "given": pa.array([None] * count, pa.string()),
            "problem": pa.array([None] * count, pa.string()),
            "line": pa.array([None] * count, pa.string()),
        }
    ).to_batches()
    batch = BatchContext("night", **options)
    url = f"sqlite:///{folder}/{algorithm}.db"
    job = FoldJob(guarded(diary.app), url, "diaries", batch, algorithm=algorithm)
    found = [row for outcomes in job.fold(rows) for row in outcomes.to_pylist()]
    return [
        (row["message_id"], row["status"], row["reason"], row["error"], len(row["outputs"])) for row in found
    ]


@pytest.mark.parametrize("algorithm", ["outbox", "deduplication-store"])
@pytest.mark.parametrize("on_error", ["continue", "stop-stream"])
def test_they_end_as_they_do_state_based(tmp_path, algorithm, on_error):
    expected = fold(tmp_path, "state-based", DELIVERIES, on_error=on_error)
    assert [reason for _, _, reason, *_ in expected[1:4]] == [
        "invalid_body",
        "invalid_body",
        "business_id_mismatch",
    ]

    found = fold(tmp_path, algorithm, DELIVERIES, on_error=on_error)

    assert [each[:3] for each in found] == [each[:3] for each in expected]
    assert [each[4] for each in found] == [each[4] for each in expected]


@pytest.mark.parametrize("algorithm", ["outbox", "deduplication-store", "tokens"])
def test_a_key_that_no_table_can_hold_is_a_dead_letter(tmp_path, algorithm):
    (outcome,) = fold(tmp_path, algorithm, [delivery("m", "Write", {"diary": LONG, "line": "a"})], LONG)

    assert outcome[1:3] == ("dead_letter", "key_too_long")
