"""Outcomes in files, as batches leave them in their folder."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq

from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome, Output, Status
from runtime.messages.outcomes import Outcomes
from runtime.spark.workers.outcomes import to_arrow

NOON = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1_000_000)


def won(number, name):
    return Output(f"w{number}", "Won", json.dumps({"name": name}), number, NOON, {"from": "raffle"})


def processed(number, *outputs, status=Status.PROCESSED):
    return Outcome(
        Envelope(f"m{number}", "Drawn", "{}"), "Raffle", f"r{number % 2}", status, None, None, number, outputs
    )


def write(folder, batch, round_, outcomes, *, is_whole=True):
    place = folder / f"batch_id={batch}" / f"round={round_}"
    place.mkdir(parents=True)
    pq.write_table(pa.Table.from_batches([to_arrow([Outcomes.of(outcomes)])]), place / "part-0.parquet")
    if is_whole:
        (place / "_batch-token-digest").touch()
