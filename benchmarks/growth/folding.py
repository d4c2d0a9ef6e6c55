"""Batches without Spark: what a Spark worker does with a partition, on an SQLite file, and what is measured of it."""

from __future__ import annotations

import sqlite3
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.contender import DisagreementError, check
from benchmarks.contenders.stored import stored_states
from benchmarks.shooting import TABLE, Delivery, final_states
from eventstore import InterceptedTable, Operation, Page, Row, Table, drive
from eventstore.limits import prepare_row
from handlers import App
from runtime.batch_options import BatchOptions
from runtime.clock import Clock, system_clock
from runtime.ledger.batch import BatchContext
from runtime.spark.batch import new_batch_id
from runtime.spark.worker.connection import Connection, open_table
from runtime.spark.worker.job import FoldJob
from samples.shooting_range import app as shooting_range


class CountedTable(InterceptedTable):
    """Counts the bytes of properties, as a table service counts them for its limits."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.bytes_read = 0
        self.bytes_sent = 0

    async def get(self, partition_key: str, row_key: str) -> Row | None:
        """Count what is read."""
        row = await super().get(partition_key, row_key)
        self.bytes_read += 0 if row is None else prepare_row(row.properties)[1]
        return row

    async def query(
        self,
        partition_key: str,
        first: str,
        last: str,
        *,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        """Count what is read."""
        page = await super().query(partition_key, first, last, select=select, continuation=continuation)
        self.bytes_read += sum(prepare_row(row.properties)[1] for row in page.rows)
        return page

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        """Count what is sent."""
        self.bytes_sent += sum(prepare_row(operation.properties)[1] for operation in operations)
        return await super().transact(partition_key, operations)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one or more batches.

    `visits` counts streams, once for each batch that they have messages in. `requests`, `bytes_read` and `bytes_sent`
    are those at the table port, and 0 where they were not counted. `outcomes` counts by status, or the reason of a
    dead letter. `facts` are further figures by name.
    """

    seconds: float
    messages: int
    visits: int
    outcomes: Mapping[str, int]
    requests: int = 0
    bytes_read: int = 0
    bytes_sent: int = 0
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def microseconds(self) -> float:
        """The time of a message."""
        return self.seconds / self.messages * 1e6


def total(costs: Iterable[Cost]) -> Cost:
    """Return the cost of several batches one after another. Facts are those of the last."""
    every = list(costs)
    outcomes: Counter[str] = Counter()
    for cost in every:
        outcomes.update(cost.outcomes)
    return Cost(
        sum(cost.seconds for cost in every),
        sum(cost.messages for cost in every),
        sum(cost.visits for cost in every),
        dict(outcomes),
        sum(cost.requests for cost in every),
        sum(cost.bytes_read for cost in every),
        sum(cost.bytes_sent for cost in every),
        every[-1].facts,
    )


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
        job = FoldJob(
            self._app,
            self._url,
            TABLE,
            BatchContext(new_batch_id()),
            BatchOptions(clock=self._clock, wrap=wrap),
        )
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


@dataclass(frozen=True, slots=True)
class Plan:
    """How a series is measured: its sizes, how many messages take part, and in how many turns.

    What `messages` means is the series' own: those of all streams, of a batch, or of the largest batch.
    """

    sizes: Sequence[int]
    messages: int
    turns: int = 3


class Series(ABC):
    """Measures each size once a turn, so that a slow minute of the machine meets all of them.

    `most` is the most that the time of a unit of work may be at the largest size, as a multiple of that at the
    smallest. Work is a message, or where `work_is_size` as much of a message as the size says.
    """

    title: ClassVar[str]
    quantity: ClassVar[str]
    most: ClassVar[float] = 1.5
    work_is_size: ClassVar[bool] = False

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder

    def prepare(self) -> None:  # noqa: B027 - most have nothing to do here
        """Make what all turns begin with."""

    @abstractmethod
    def turn(self, folder: Path, *, counted: bool) -> Iterator[tuple[int, Cost]]:
        """Give the cost at each size, in a new folder. Raises `DisagreementError` when what was done is wrong."""


class SizeBySize(Series):
    """Measures its sizes apart from each other, each with an empty folder of its own."""

    def turn(self, folder: Path, *, counted: bool) -> Iterator[tuple[int, Cost]]:
        """Measure each size."""
        for size in self.plan.sizes:
            place = folder / str(size)
            place.mkdir(parents=True)
            yield size, self.measure(size, place, counted=counted)

    @abstractmethod
    def measure(self, size: int, folder: Path, *, counted: bool) -> Cost:
        """Return what one size costs. Raises `DisagreementError`."""
