"""A ledger with more and more batches that ended, and the next batch and truncation."""

from __future__ import annotations

import shutil
import time
import tracemalloc
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.growth.folding import Cost, CountedTable, SizeBySize
from benchmarks.shooting import TABLE
from eventstore import Operation, Table, connect, drive
from eventstore.port import MultiPartitionTable, Transaction
from runtime.clock import system_clock
from runtime.ledger.ledger import (
    PARTITION,
    STATE_BASED,
    BatchRecord,
    BatchStatus,
    Counter,
    Ledger,
    past_marker,
    record_properties,
)

_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_BATCHES_AT_ONCE = 10_000
_IN_A_TRANSACTION = 40


class LedgerSize(SizeBySize):
    """Runs batches without messages, and truncations without streams: all they do is ask the ledger.

    A message stands for a batch with a truncation after it. The fact is the memory that they take at most.
    """

    title = "A batch and a truncation, on a ledger with a history"
    quantity = "batches that ended before"

    def prepare(self) -> None:
        """Write the longest history, and keep a copy at each size on the way."""
        file = self.folder / "growing.db"
        self.folder.mkdir(parents=True, exist_ok=True)
        done = 0
        for size in sorted(self.plan.sizes):
            drive(_write_history(file, done, size))
            done = size
            shutil.copy(file, self._copy(size))

    def measure(self, size: int, folder: Path, *, counted: bool) -> Cost:  # noqa: ARG002 - too large for a copy
        """Run some batches, each with a truncation after it, and do so once more to measure memory."""
        table = drive(connect(f"sqlite:///{self._copy(size)}").table(TABLE))
        watched = CountedTable(table)
        began = time.perf_counter()
        for _ in range(self.plan.messages):
            drive(_batch_and_truncation(watched if counted else table))
        seconds = time.perf_counter() - began
        tracemalloc.start()
        drive(_batch_and_truncation(table))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        count = self.plan.messages
        return Cost(
            seconds,
            count,
            count,
            {"processed": count},
            watched.calls,
            watched.bytes_read,
            watched.bytes_sent,
            {"memory_bytes": most},
        )

    def _copy(self, size: int) -> Path:
        return self.folder / f"{size}.db"


async def _batch_and_truncation(table: Table) -> None:
    """Ask the ledger what the driver of a batch asks it, and then that of a truncation."""
    ledger, batch_id = Ledger(table, system_clock), uuid.uuid4().hex
    await ledger.check_table(STATE_BASED)
    await ledger.find(batch_id)
    record = await ledger.begin(batch_id, "a log", "/out")
    await ledger.open_batches()
    await ledger.publish(await ledger.commit_round(record, 0, {"processed": 1}, 0))
    await ledger.open_batches()
    await ledger.prune(0)


async def _write_history(file: Path, first: int, end: int) -> None:
    """Write the rows of batches that ended, as they are once all of them ended."""
    async with connect(f"sqlite:///{file}") as store:
        table = await store.table(TABLE)
        if not isinstance(table, MultiPartitionTable):
            raise TypeError("A table of SQLite commits transactions together.")
        for start in range(first, end, _BATCHES_AT_ONCE):
            transactions = list(_rows_of(start, min(start + _BATCHES_AT_ONCE, end)))
            await table.transact_each(transactions)
        counter = Counter(end + 1, STATE_BASED, "batch-0").operation()
        await table.transact(PARTITION, [Operation.insert_or_replace(counter.row_key, counter.properties)])


def _rows_of(first: int, end: int) -> Iterator[Transaction]:
    for start in range(first, end, _IN_A_TRANSACTION):
        operations = []
        for number in range(start, min(start + _IN_A_TRANSACTION, end)):
            record = _record(number)
            past = past_marker(record)
            operations += [Operation.insert(record.batch_id, record_properties(record)), past]
        yield PARTITION, operations


def _record(number: int) -> BatchRecord:
    at = _BEGAN + timedelta(seconds=number)
    return BatchRecord(
        f"batch-{number}",
        "a log",
        "/out",
        "token",
        BatchStatus.PUBLISHED,
        1,
        at,
        at,
        {"processed": 1},
        number=number + 1,
    )
