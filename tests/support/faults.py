"""Faults for Spark's workers: tables that fail at a chosen call. They can be pickled, so batches can carry them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from eventstore import Operation, Table
from runtime.algorithms.outbox.entity import ENTITY
from runtime.spark.worker.outcomes import MAX_BYTES, PartJob
from tests.support.outcome_rows import batch, outcome


class WorkerDiedError(Exception):
    """Stands for a worker that died."""


Sign = Callable[[str, Sequence[Operation]], bool]
"""Says by its partition key and operations whether a transaction is the one to die after."""


@dataclass(frozen=True)
class DieOnceAfter:
    """Wraps a table: after the first transaction of a kind is committed by any process, the worker fails.

    `marker` is a file that records, for all processes, that it has happened. With `driver`, a process id, the driver is
    killed by SIGKILL instead.
    """

    marker: str
    sign: Sign
    driver: int | None = None

    def __call__(self, table: Table) -> Any:
        return _FailingTable(table, self)

    def after(self, partition_key: str, operations: Sequence[Operation]) -> None:
        if not self.sign(partition_key, operations) or not _is_first(self.marker):
            return
        if self.driver is not None:
            os.kill(self.driver, signal.SIGKILL)
        raise WorkerDiedError("the worker died after its transaction")


class _Proxy:
    """A table that keeps the methods which only some tables have."""

    def __init__(self, table: Table, fault: Any) -> None:
        self._table = table
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


class _FailingTable(_Proxy):
    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        etags: tuple[str, ...] = await self._table.transact(partition_key, operations)
        self._fault.after(partition_key, operations)
        return etags


def appends_to_a_range(partition_key: str, operations: Sequence[Operation]) -> bool:
    return partition_key.startswith("ShootingRange-")


def stores_an_entity(partition_key: str, operations: Sequence[Operation]) -> bool:
    """Return whether an entity is stored with outputs that are not finished."""
    return _pending(operations) > 0


def finishes_an_entity(partition_key: str, operations: Sequence[Operation]) -> bool:
    return _is_entity(operations) and _pending(operations) == 0


def creates_tokens(partition_key: str, operations: Sequence[Operation]) -> bool:
    return partition_key.startswith("tokens.") and len(operations) > 1


def finishes_elsewhere(partition_key: str, operations: Sequence[Operation]) -> bool:
    """Return whether a token is deleted, or a message is added to the deduplication store."""
    return not _is_entity(operations) and not creates_tokens(partition_key, operations)


def _is_entity(operations: Sequence[Operation]) -> bool:
    return operations[0].row_key == ENTITY


def _pending(operations: Sequence[Operation]) -> int:
    pending = operations[0].properties.get("Pending", 0) if _is_entity(operations) else 0
    assert isinstance(pending, int)
    return pending


@dataclass(frozen=True)
class CountCalls:
    """Wrap a table so that each of its calls is a line in a file of the process that makes it."""

    folder: str

    def __call__(self, table: Table) -> Any:
        return _CountedTable(table, self)

    def calls(self, name: str) -> int:
        lines = [line for file in Path(self.folder).glob("*.calls") for line in file.read_text().splitlines()]
        return lines.count(name)


class _CountedTable(_Proxy):
    def __getattr__(self, name: str) -> Any:
        found = getattr(self._table, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            with Path(self._fault.folder, f"{os.getpid()}.calls").open("a") as file:
                file.write(f"{name}\n")
            return found(*arguments, **options)

        return call


def as_outcomes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give an outcome for each number that comes in: so large that it is a row group of its own."""
    for given in batches:
        for number in given.column("id").to_pylist():
            yield batch([outcome() | {"message_id": f"{number}", "delivery": "x" * MAX_BYTES}])


@dataclass(frozen=True)
class KillOnceAmidAFile:
    """Gives outcomes as `as_outcomes` does; the first worker that has written a row group is killed."""

    marker: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for outcomes in as_outcomes(batches):
            yield outcomes
            if _is_first(self.marker):
                os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class FailOnceAfterWriting:
    """Writes outcomes as a task does, and then fails the first time."""

    job: PartJob
    marker: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.job.run(batches)
        if _is_first(self.marker):
            raise WorkerDiedError("the worker died after it had written its file")


def _is_first(marker: str) -> bool:
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
