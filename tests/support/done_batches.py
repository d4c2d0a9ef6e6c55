"""Batches that are done, made without Spark: their outcomes in a folder, and their rows in the ledger."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from eventstore import connect
from runtime.clock import system_clock
from runtime.ledger.ledger import BatchRecord, BatchStatus, Ledger, mark_of
from runtime.spark.worker.outcomes import ARROW_OUTCOME

TABLE = "games"
BATCH = "b1"
_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)

Rows = Sequence[Mapping[str, Any]]


def output(name: str, sequence: int, type_: str = "Hit", body: str | None = None) -> dict[str, Any]:
    return {
        "message_id": name, "type": type_, "body": body or f'{{"number": {sequence}}}', "sequence": sequence,
        "enqueued_at": _AT + timedelta(seconds=sequence), "headers": [("trace", name)],
    }  # fmt: skip


def outcome(business_id: str, *outputs: Mapping[str, Any], handler: str = "ShootingRange") -> dict[str, Any]:
    return {
        "message_id": f"m-{business_id}-{outputs[0]['sequence'] if outputs else 0}", "type": "FireAt",
        "handler": handler, "business_id": business_id, "status": "processed", "outputs": list(outputs),
    }  # fmt: skip


def games(count: int, each: int) -> list[Rows]:
    """Return two rounds in which each of some games publishes so many outputs, the newest half in the second."""
    half = each // 2
    return [
        [
            outcome(f"g{game}", output(f"g{game}-{number}", number, "Hit" if number % 3 else "Missed"))
            for number in numbers
            for game in range(count)
        ]
        for numbers in (range(half), range(half, each))
    ]


def make_batch(store, out, rounds, *, batch_id=BATCH, ends=True, input_="a log") -> BatchRecord:
    """Write the rounds of a batch, and bring it into the ledger of a store."""
    return asyncio.run(_make(store, out, rounds, batch_id, input_, ends=ends))


async def _make(store, out, rounds, batch_id, input_, *, ends) -> BatchRecord:
    async with connect(store) as opened:
        ledger = Ledger(await opened.table(TABLE), system_clock)
        record = await ledger.begin(batch_id, input_, str(out))
        for number, rows in enumerate(rounds):
            write_round(out, record, number, rows)
            counts = {"outputs": sum(len(row["outputs"]) for row in rows)}
            record = await ledger.commit_round(record, number, counts, 0)
        return await ledger.publish(record) if ends else record


def write_round(out: Path, record: BatchRecord, number: int, rows: Rows) -> None:
    """Put the outcomes of a round in place, in two files."""
    folder = out / f"batch_id={record.batch_id}" / f"round={number}"
    folder.mkdir(parents=True)
    for part in range(2):
        some = [dict(row) for row in rows if hash_of(row["business_id"] or "") % 2 == part]
        pq.write_table(pa.Table.from_pylist(some, ARROW_OUTCOME), folder / f"part-{part}.parquet")
    sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
    (folder / mark_of(record.token, sizes)).touch()


def hash_of(text: str) -> int:
    """Return a number that follows from a text in every process."""
    return sum(text.encode())


def started(out: Path | str, token: str = "token") -> BatchRecord:
    """Return the record of the batch `night`, of which no round is committed."""
    return BatchRecord("night", "", str(out), token, BatchStatus.STARTED, 0, _AT, _AT, {})
