"""A game of the ShootingRange that is played in batches on a table in memory, for pages that show what that costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from benchmarks.algorithms.metered_table import MeteredTable
from benchmarks.algorithms.play import ONE_GAME, shots, ticking_clock
from benchmarks.games import game_id
from eventstore import Operation, Row, drive
from handlers import App
from runtime.algorithms.choice import Dependencies, make_batch_algorithms
from runtime.ledger.batch import BatchContext
from runtime.messages.parsing import prepare
from samples.shooting_range.handlers import ShootingRange

GAME = game_id(0)
KEY = f"ShootingRange-{GAME}"


class Cost(NamedTuple):
    """What a batch asked of the table."""

    requests: int
    rows_read: int
    rows_written: int


class RowMeter(MeteredTable):
    """A table that also counts the rows that are written."""

    rows_written = 0

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        self.rows_written += len(operations)
        return await super().transact(partition_key, operations)


def play(sizes: Iterable[int]) -> tuple[RowMeter, list[Cost]]:
    """Process batches of these sizes, and return the table with what each of them cost."""
    table, app, clock = RowMeter(), App(ShootingRange), ticking_clock()
    (handler,) = app.handlers.values()
    costs: list[Cost] = []
    played = 0
    for batch, size in enumerate(sizes):
        context = BatchContext(f"20260101T000000-{batch:06}")
        given = Dependencies(app, table, table, clock=clock, batch=context)
        (algorithm,) = make_batch_algorithms("state-based", given).values()
        messages = shots(range(played, played + size), ONE_GAME)
        before = Cost(table.requests, table.rows_read, table.rows_written)
        drive(algorithm.process(GAME, [prepare(handler, GAME, each) for each in messages]))
        after = Cost(table.requests, table.rows_read, table.rows_written)
        costs.append(Cost(*(now - then for now, then in zip(after, before, strict=True))))
        played += size
    return table, costs


def rows(table: MeteredTable) -> tuple[Row, ...]:
    """Return all rows of a table."""
    return drive(table.scan(None)).rows
