"""Batches without Spark: what a Spark worker does with a partition, on an SQLite file, and what it costs.

The fold is the worker's own, from the Arrow batches that it is given to those that it gives back. Left out are
reading the log, the shuffle before and the Parquet files after, whose fixed cost would hide how the rest grows.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.contender import DisagreementError, check
from benchmarks.contenders.stored import stored_states
from benchmarks.growth.counted_table import CountedTable
from benchmarks.growth.measurement import Cost
from benchmarks.shooting import TABLE, Delivery, final_states
from eventstore import Table, drive
from handlers import App
from runtime.clock import Clock, system_clock
from runtime.ledger.batch import BatchContext
from runtime.spark.rounds import new_batch_id
from runtime.spark.worker.connection import Connection, open_table
from runtime.spark.worker.job import FoldJob
from samples.shooting_range import app as shooting_range

Batches = Sequence[pa.RecordBatch]


class Folding:
    """A table, and batches of new deliveries that are folded onto it one after another.

    When they are `counted`, what they ask of the table is counted too, which takes a little time.
    """

    def __init__(
        self, file: Path, app: App = shooting_range, *, counted: bool, clock: Clock = system_clock
    ) -> None:
        self.file = file
        self._clock = clock
        self._app = app
        self._counted = counted
        # Neither the connection nor SQLite's first look at the file belongs to a batch.
        drive(self.connection.table.get("none", "none"))

    @property
    def connection(self) -> Connection:
        """The connection of this process."""
        return open_table(self._url, TABLE)

    def fold(self, batches: Batches) -> Cost:
        """Handle a batch of deliveries, those of each stream together, and return what it cost."""
        counted: list[CountedTable] = []
        wrap = partial(_count, counted) if self._counted else None
        job = FoldJob(self._app, self._url, TABLE, BatchContext(new_batch_id()), self._clock, wrap=wrap)
        began = time.perf_counter()
        outcomes = list(job.fold(batches))
        seconds = time.perf_counter() - began
        return Cost(
            seconds,
            sum(batch.num_rows for batch in batches),
            len({game for batch in batches for game in batch.column("business_id").unique().to_pylist()}),
            dict(_ends(outcomes)),
            sum(table.calls for table in counted),
            sum(table.bytes_read for table in counted),
            sum(table.bytes_sent for table in counted),
        )

    def check(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Raise `DisagreementError` unless the games ended as a plain fold of all their messages says."""
        names = Delivery._fields
        deliveries = (
            Delivery(*values)
            for batch in batches
            for values in zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        )
        check(stored_states(self._url), final_states(deliveries), "growth")

    def settle(self) -> None:
        """Bring everything into the one file, so that it can be copied."""
        with closing(sqlite3.connect(self.file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @property
    def _url(self) -> str:
        return f"sqlite:///{self.file}"


def expect(cost: Cost, outcomes: Counter[str]) -> Cost:
    """Return the cost when its outcomes are those. Raises `DisagreementError`."""
    if cost.outcomes != +outcomes:
        message = f"The outcomes are {dict(cost.outcomes)}, but should be {dict(+outcomes)}."
        raise DisagreementError(message)
    return cost


def _count(counted: list[CountedTable], table: Table) -> Table:
    counted.append(CountedTable(table))
    return counted[-1]


def _ends(batches: Iterable[pa.RecordBatch]) -> Counter[str]:
    ends: Counter[str] = Counter()
    for batch in batches:
        reasons = pc.coalesce(batch.column("reason"), batch.column("status"))
        ends.update(reasons.to_pylist())
    return ends
