"""A batch without Spark: the shipped rounds, folds, folders and ledger, with a forked process for each partition.

What Spark does is done here by a few lines of Python: messages are routed and sorted, a partition goes to a process, a
task whose process died is tried again, up to four times as on a cluster, and the rows that come back are collected.
Everything else is the code that a batch on Spark runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, cast
from unittest.mock import patch
from zlib import crc32

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from runtime.errors import BatchFailedError
from runtime.ledger.ledger import BatchRecord
from runtime.messages.outcome import Status
from runtime.spark import batch as rounds
from runtime.spark import streaming
from runtime.spark.batch import Rounds, Work
from runtime.spark.commit import BatchFolders
from runtime.spark.streaming import Stream
from runtime.spark.worker.connection import open_table
from runtime.spark.worker.job import FoldJob
from runtime.spark.worker.outcomes import Fold
from tests.faults.children import Child, ChildFailedError, End
from tests.support.routed import fold_schema, routes_of

ATTEMPTS = 4
"""How often Spark tries a task on a cluster."""

Row = dict[str, Any]
_on_death: ContextVar[Callable[[], None]] = ContextVar("_on_death", default=lambda: None)
_KNOWN = (Status.PROCESSED.value, Status.DUPLICATE.value)
_ENTITIES = pa.schema(
    [("handler", pa.string()), ("business_id", pa.string()), ("message_ids", pa.list_(pa.string()))]
)


@contextmanager
def noting_deaths(note: Callable[[], None]) -> Iterator[None]:
    """Have a function called for each process of a partition that was killed."""
    before = _on_death.set(note)
    try:
        yield
    finally:
        _on_death.reset(before)


@dataclass(frozen=True)
class Partitions:
    """Rows that are spread over processes, in place of a DataFrame of Spark."""

    tables: Sequence[pa.Table]
    run: Fold | None = None

    def mapInArrow(self, run: Fold, _: StructType | str) -> Partitions:  # noqa: N802 - Spark's name
        return replace(self, run=run)

    def collect(self) -> list[Collected]:
        """Run it in processes, all partitions at once; a task whose process died is tried again.

        Raises `BatchFailedError` when a task does: Spark's job fails then, which the driver learns as that.
        """
        waiting, found = list(self.tables), []
        for _ in range(ATTEMPTS):
            tasks = [(table, Child(Task(self.run, table))) for table in waiting]
            ends = [(table, _end_of(child)) for table, child in tasks]
            found += [Collected(row) for _, end in ends if not end.is_killed for row in end.result]
            waiting = [table for table, end in ends if end.is_killed]
            for _ in waiting:
                _on_death.get()()
            if not waiting:
                return found
        raise BatchFailedError(f"A task has lost its process {ATTEMPTS} times.")


def _end_of(task: Child) -> End:
    try:
        return task.end()
    except ChildFailedError as error:
        if BatchFailedError.__name__ in error.last_line:
            raise BatchFailedError(error.last_line) from error
        raise


class _OneTask:
    """Plans a task as a session does, to be run in a process."""

    def range(self, *_: int) -> Partitions:
        return Partitions([pa.table({"id": [0]})])


NO_SPARK = cast("SparkSession", _OneTask())


@dataclass(frozen=True)
class Collected:
    values: Row

    def asDict(self) -> Row:  # noqa: N802 - Spark's name
        return {**self.values, "statuses": dict(self.values["statuses"])} if self.values else {}


@dataclass(frozen=True)
class Task:
    """What runs over a partition, to be called where it is to run."""

    run: Any
    table: pa.Table

    def __call__(self) -> list[Row]:
        return [row for batch in self.run(self.table.to_batches()) for row in batch.to_pylist()]


@dataclass(frozen=True)
class Folders(BatchFolders):
    def outcomes(self, number: int | None = None) -> Any:
        found = []
        for each in range(self.record.rounds) if number is None else [number]:
            table = parquet.ParquetDataset(self.round(each)).read()
            found += [{**row, "round": each} for row in table.to_pylist()]
        return found


@dataclass(frozen=True)
class BatchWithoutSpark(Rounds):
    log: Sequence[Row] = field(default=())

    def drive(self, batch_id: str) -> None:
        begun = self.begin(batch_id, "a log")
        ended = begun
        if not begun.is_finished:
            ended = self.end(begun, self.work_on(self.log, self.job(begun)))
        self.result(begun, ended)

    @property
    def partitions(self) -> int:
        return self.options.partitions or 2

    def work_on(self, messages: Sequence[Row], job: FoldJob) -> Work:
        return Work(cast("Any", self.routed(messages)), job.fold)

    def check_place(self) -> None:
        """Check nothing: Spark is needed for that."""

    def _folders(self, record: BatchRecord) -> Folders:
        return Folders(self.spark, record)

    def _finish(self, record: BatchRecord) -> None:
        if not self.options.has_outbox or record.rounds == 0:
            return
        self.options.step(f"Round {record.rounds - 1}: finishing messages")
        ids: dict[tuple[str, str], set[str]] = defaultdict(set)
        for row in self._folders(record).outcomes(record.rounds - 1):
            if row["status"] in _KNOWN:
                ids[row["handler"], row["business_id"]].add(row["message_id"])
        rows = [
            {"handler": handler, "business_id": business_id, "message_ids": sorted(found)}
            for (handler, business_id), found in ids.items()
        ]
        Partitions(self._spread(rows, _ENTITIES), _Second(self.job(record))).collect()

    def _next_round(self, record: BatchRecord) -> Work:
        rows = self._folders(record).outcomes()
        done = {(row["message_id"], row["handler"]) for row in rows if row["status"] in _KNOWN}
        outputs = [
            {**output, "headers": dict(output["headers"] or {})}
            for row in rows
            if row["round"] == record.rounds - 1
            for output in row["outputs"]
            if any(
                (output["message_id"], route.handler) not in done for route in self.app.routes(output["type"])
            )
        ]
        return self.work_on(outputs, self.job(record))

    def routed(self, messages: Sequence[Row]) -> Partitions:
        rows = [dict(row) for message in messages for row in routes_of(self.app, message)]
        first: dict[tuple[str, str], int] = {}
        for row in rows:
            copy = (row["business_id"] or "", row["message_id"])
            first[copy] = min(first.get(copy, row["sequence"]), row["sequence"])
        rows.sort(
            key=lambda row: (
                row["handler"] or "",
                row["business_id"] or "",
                first[row["business_id"] or "", row["message_id"]],
                row["message_id"],
                row["sequence"],
            )
        )
        return Partitions(self._spread(rows, fold_schema(pa.string())))

    def _spread(self, rows: Sequence[Row], schema: pa.Schema) -> list[pa.Table]:
        parts: list[list[Row]] = [[] for _ in range(self.partitions)]
        for row in rows:
            parts[crc32(f"{row['handler']}/{row['business_id']}".encode()) % self.partitions].append(row)
        return [pa.Table.from_pylist(part, schema) for part in parts if part]


@dataclass(frozen=True)
class _Second:
    """The second pass, whose rows nobody wants."""

    job: FoldJob

    def __call__(self, batches: Any) -> Iterator[pa.RecordBatch]:
        for _ in self.job.finish(batches):
            yield from ()


@dataclass
class StreamWithoutSpark(Stream):
    def _prepare_once(self, begun: Rounds, epoch: int) -> None:
        if not self._is_prepared:
            begun.check_table()
            self._is_prepared = True

    def _run(self, messages: Any, epoch: int) -> None:
        routed = self._rounds(messages).routed(messages)
        with (
            patch.object(streaming, "group", return_value=routed),
            patch.object(rounds, "planned_once", nullcontext),
        ):
            super()._run(messages, epoch)

    def _rounds(self, messages: Any) -> BatchWithoutSpark:
        connection = open_table(self.place.store, self.place.table)
        out = self.places.working
        return BatchWithoutSpark(NO_SPARK, self.app, self.place, out, self.options, connection, messages)
