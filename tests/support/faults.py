"""Faults for Spark's workers: tables that fail at a chosen call. They pickle, so that a batch can take them along."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eventstore import Operation, Table


class WorkerDiedError(Exception):
    """Stands for a worker that died."""


@dataclass(frozen=True)
class DieOnceAfterAppend:
    """Wrap a table so that the first append of a handler's streams is committed, and then the worker fails.

    `marker` is a file that remembers, over all processes, that it has happened.
    """

    marker: str
    handler: str

    def __call__(self, table: Table) -> Table:
        return _DyingTable(table, self)


class _DyingTable:
    def __init__(self, table: Table, fault: DieOnceAfterAppend) -> None:
        self._table = table
        self._fault = fault

    def __getattr__(self, name: str):
        return getattr(self._table, name)

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        etags = await self._table.transact(partition_key, operations)
        if partition_key.startswith(self._fault.handler) and _is_first(self._fault.marker):
            message = "the worker died after its append"
            raise WorkerDiedError(message)
        return etags


@dataclass(frozen=True)
class CountCalls:
    """Wrap a table so that each of its calls is a line in a file of the process that makes it."""

    folder: str

    def __call__(self, table: Table) -> Table:
        return _CountedTable(table, Path(self.folder))

    def calls(self, name: str) -> int:
        """Return how often a call was made, by all processes."""
        lines = [line for file in Path(self.folder).glob("*.calls") for line in file.read_text().splitlines()]
        return lines.count(name)


class _CountedTable:
    def __init__(self, table: Table, folder: Path) -> None:
        self._table = table
        self._folder = folder

    def __getattr__(self, name: str):
        with (self._folder / f"{os.getpid()}.calls").open("a") as file:
            file.write(f"{name}\n")
        return getattr(self._table, name)


def _is_first(marker: str) -> bool:
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
