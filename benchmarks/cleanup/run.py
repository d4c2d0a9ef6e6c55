"""The truncation of one table of very many streams, in a process of its own; the table is copied from one stream."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from unittest.mock import patch

from benchmarks.azurite import Azurite
from benchmarks.contender import DisagreementError
from benchmarks.games import game_id, message
from benchmarks.shooting import HANDLER, NOW, TABLE
from benchmarks.skew.run import Sampler
from eventstore import Operation, Row, RowExistsError, Table, connect, drive
from eventstore.port import MultiPartitionTable, Transaction
from runtime import Envelope, Processor
from runtime.algorithms.choice import published_by_nobody
from runtime.algorithms.state_based.truncation import DAY
from runtime.clock import to_datetime
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.spark import build_session, truncate
from runtime.versions import limits
from samples.shooting_range import app

RUNS = 3
_AT_ONCE = 500
_UNDER_WAY = 32


async def fill(store_url: str, table_name: str, streams: int) -> None:
    """Write so many streams into a new table."""
    rows = _rows_of_one()
    async with connect(store_url) as store:
        table = await store.table(table_name)
        transactions = (_copied(rows, number) for number in range(streams))
        if isinstance(table, MultiPartitionTable):
            while some := list(islice(transactions, _AT_ONCE)):
                for result in await table.transact_each(some):
                    if isinstance(result, Exception):
                        raise result
        else:
            await asyncio.gather(*(_write(table, transactions) for _ in range(_UNDER_WAY)))


async def _write(table: Table, transactions: Iterator[Transaction]) -> None:
    retries = RetryPolicy().beside(table)
    for transaction in transactions:
        await until_undisturbed(retries, partial(_insert, table, transaction))


async def _insert(table: Table, transaction: Transaction) -> None:
    with suppress(RowExistsError):  # an attempt without an answer has written them
        await table.transact(*transaction)


def _copied(rows: Sequence[Row], number: int) -> Transaction:
    key = f"{HANDLER.name}-{game_id(number)}"
    return key, [Operation.insert(row.row_key, row.properties) for row in rows]


def _rows_of_one() -> Sequence[Row]:
    """Play a game whose first messages are runs, and return its rows."""
    table = drive(connect("memory:").table("one"))
    processor = Processor(app, table, published_by_nobody, clock=lambda: NOW)
    with patch.object(limits, "MAX_SEGMENT_BYTES", 0):
        for turn in range(RUNS):
            drive(processor.process(_old(turn)))
    drive(processor.process(_old(RUNS)))
    key = f"{HANDLER.name}-{game_id(0)}"
    return [row for row in drive(table.scan(None)).rows if row.partition_key == key]


def _old(turn: int) -> Envelope:
    delivery = message(0, 4 * turn)  # starts, which have no outputs
    return Envelope.of(delivery.message_id, delivery.type, delivery.body, enqueued_at=to_datetime(NOW))


_MB = 10**6
_KIB = 1024


@dataclass(frozen=True, slots=True)
class Found:
    """What the truncation of a table took: time, requests, and at most how much memory in a worker and the driver."""

    store: str
    streams: int
    rows: int
    requests: int
    seconds: float
    worker_mb: float
    driver_mb: float

    @property
    def requests_per_row(self) -> float:
        """How many requests each deleted row took."""
        return self.requests / self.rows


def run(store: str, streams: int, folder: Path) -> Found:
    """Fill a table and truncate it. Raises `DisagreementError` when something else than all old runs was cut."""
    with _store(store, folder) as url:
        asyncio.run(fill(url, TABLE, streams))
        spark = build_session("local[2]", log_file=folder / "spark.log")
        try:
            began = time.perf_counter()
            with Sampler(lambda: 0) as sampler:
                done = truncate(spark, store=url, table=TABLE, older_than=DAY, acknowledged_after=0)
            seconds = time.perf_counter() - began
        finally:
            spark.stop()
    (count,) = done.counts
    if (count.streams, count.cut, count.runs) != (streams, streams, RUNS * streams):
        problem = f"Of {streams:,} streams with {RUNS} old runs each, {count} was cut."
        raise DisagreementError(problem)
    worker = max(sample.largest for sample in sampler.samples) / _MB
    driver = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB / _MB
    return Found(store, streams, count.rows, done.requests, seconds, worker, driver)


@contextmanager
def _store(name: str, folder: Path) -> Iterator[str]:
    if name == "sqlite":
        yield f"sqlite:///{folder / 'store.db'}"
        return
    azurite = Azurite(folder)
    try:
        yield azurite.url
    finally:
        azurite.stop()
