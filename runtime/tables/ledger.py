"""The ledger as a table: a row for each batch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pyarrow as pa

from eventstore import Table
from runtime.batches.numbering import Numbering
from runtime.batches.record import BatchRecord
from runtime.clock import to_microseconds
from runtime.tables.columns import TEXT, TIME, Buffer, chosen
from runtime.tables.wanted import Wanted

BATCH_COLUMNS = {
    "batch": TEXT,
    "batch_number": pa.int64(),
    "status": TEXT,
    "algorithm": TEXT,
    "input": TEXT,
    "out": TEXT,
    "rounds": pa.int32(),
    "started_at": TIME,
    "updated_at": TIME,
    "counts": pa.map_(TEXT, pa.int64()),
}


async def batches(table: Table, wanted: Wanted) -> AsyncIterator[pa.RecordBatch]:
    """Give all batches of a table in the order of their ids: one request for each 1,000."""
    columns = chosen(BATCH_COLUMNS, wanted.columns)
    buffer = Buffer(columns)
    async for record in Numbering(table).records():
        row = _row(record)
        buffer.add({name: [row[name]] for name in columns}, 1, len(record.input))
        if buffer.is_full:
            yield buffer.take()
    if buffer.rows:
        yield buffer.take()


def _row(record: BatchRecord) -> Mapping[str, Any]:
    return {
        "batch": record.batch_id,
        "batch_number": record.number,
        "status": record.status.value,
        "algorithm": record.algorithm,
        "input": record.input,
        "out": record.out,
        "rounds": record.rounds,
        "started_at": to_microseconds(record.started_at),
        "updated_at": to_microseconds(record.updated_at),
        "counts": sorted(record.counts.items()),
    }
