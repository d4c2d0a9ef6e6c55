"""A stream too long for one group: each group knows what the ones before it have come to."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from handlers import App, Context, Handler, handles
from runtime.algorithms.choice import AlgorithmName
from runtime.ledger.batch import BatchContext
from runtime.spark.verification import VerifyJob
from runtime.spark.worker import job as deliveries
from runtime.spark.worker.job import FoldJob
from samples.shooting_range import app
from samples.shooting_range.domain import FireAt, ShootingRangeData
from tests.support.logs import GAME, message_id


def batch(*rows):
    """Give routed rows (message number, body) of one game as Spark gives them to a worker."""
    count = len(rows)
    return pa.table(
        {
            "handler": ["ShootingRange"] * count,
            "business_id": [GAME] * count,
            "message_id": [message_id(number) for number, _ in rows],
            "type": ["FireAt"] * count,
            "body": [body for _, body in rows],
            "sequence": pa.array(range(count), pa.int64()),
            "enqueued_at": pa.array([None] * count, pa.timestamp("us", tz="UTC")),
            "headers": pa.array([None] * count, pa.string()),
            "given": pa.array([None] * count, pa.string()),
            "problem": pa.array([None] * count, pa.string()),
            "line": pa.array([None] * count, pa.string()),
        }
    ).to_batches()


def shot(number, position=7):
    return number, json.dumps({"game_id": GAME, "position": position})


def fold(folder, context, *rows, algorithm: AlgorithmName = "state-based"):
    job = FoldJob(app, f"sqlite:///{folder}/store.db", "games", context, algorithm=algorithm)
    return [row for found in job.fold(batch(*rows)) for row in found.to_pylist()]


@pytest.fixture(autouse=True)
def _short_groups(monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_DELIVERIES", 3)


@pytest.mark.parametrize("algorithm", ["state-based", "outbox", "deduplication-store"])
def test_more_copies_than_a_group_holds_give_their_outputs_once(tmp_path, algorithm):
    outcomes = fold(tmp_path, BatchContext("night"), *[shot(1)] * 20, algorithm=algorithm)
    assert [row["status"] for row in outcomes] == ["processed"] + ["duplicate"] * 19
    assert sum(len(row["outputs"]) for row in outcomes) == 1


@pytest.mark.parametrize("algorithm", ["state-based", "outbox", "deduplication-store"])
def test_another_message_with_the_id_at_the_end_of_a_group_changes_nothing_in_that(tmp_path, algorithm):
    copies = [*[shot(1)] * 5, shot(1, 99), *[shot(1)] * 9]
    outcomes = fold(tmp_path, BatchContext("night"), *copies, algorithm=algorithm)
    assert sum(row["status"] == "processed" for row in outcomes) == 1
    assert sum(row["reason"] == "id_reused" for row in outcomes) == 1
    assert sum(len(row["outputs"]) for row in outcomes) == 1


@pytest.mark.parametrize("algorithm", ["state-based", "outbox", "deduplication-store"])
def test_a_group_of_dead_letters_alone_stops_its_stream_too(tmp_path, algorithm):
    rows = [*[(number, "{}") for number in range(1, 4)], *[shot(number) for number in range(4, 9)]]
    outcomes = fold(tmp_path, BatchContext("night", on_error="stop-stream"), *rows, algorithm=algorithm)
    assert [row["reason"] for row in outcomes] == ["no_business_id"] * 3 + ["held_back"] * 5


def test_a_verification_counts_the_stream_once_and_gives_its_outputs_once(tmp_path):
    shots = [*[shot(1)] * 5, shot(2), shot(1, 99), *[shot(3)] * 5]
    outputs = [row["outputs"] for row in fold(tmp_path, BatchContext("night"), *shots) if row["outputs"]]
    job = VerifyJob(app, f"sqlite:///{tmp_path}/store.db", "games", with_outputs=True)

    rows = [row for found in job.verify(batch(*shots)) for row in found.to_pylist()]

    assert {row["verdict"]: (row["deliveries"], row["streams"]) for row in rows if row["verdict"]} == {
        "match": (11, 1),
        "id_reused": (1, 1),
    }
    assert [output for row in rows for output in row["outputs"]] == [
        output for each in outputs for output in each
    ]
    assert len(outputs) == 3


def test_a_verification_gives_the_first_version_that_differs_of_each_group_and_one_stream(tmp_path):
    fold(tmp_path, BatchContext("night"), *[shot(number) for number in range(1, 9)])
    job = VerifyJob(App(Deaf), f"sqlite:///{tmp_path}/store.db", "games")

    rows = [
        row
        for found in job.verify(batch(*[shot(number) for number in range(8, 0, -1)]))
        for row in found.to_pylist()
    ]

    assert [(row["version"], row["deliveries"], row["streams"]) for row in rows] == [
        (6, 3, 1),
        (3, 3, 0),
        (1, 2, 0),
    ]
    assert {row["verdict"] for row in rows} == {"nondeterministic"}


class Deaf(Handler[ShootingRangeData], name="ShootingRange"):
    """Hears no shot."""

    @handles(by="game_id")
    def fire_at(self, state: ShootingRangeData, message: FireAt, context: Context) -> ShootingRangeData:
        return state
