"""Tables of very many streams, made by copying the rows of one: each has three runs that may go, and a tail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from unittest.mock import patch

from benchmarks.games import game_id, message
from benchmarks.shooting import HANDLER, NOW
from eventstore import Operation, Row, RowExistsError, Table, connect, drive
from eventstore.port import CommitsTogether, Transaction
from runtime import Envelope, Processor
from runtime.algorithms.choice import published_by_nobody
from runtime.clock import to_datetime
from runtime.retries import RetryPolicy, until_undisturbed
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
        if isinstance(table, CommitsTogether):
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
