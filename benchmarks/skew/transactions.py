"""How far a batch is, seen from outside: each worker notes its transactions in a file, one byte for each."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eventstore import InterceptedTable, Operation, Table


@dataclass(frozen=True, slots=True)
class Transactions:
    """Is put around the tables of workers, and counts what they noted."""

    folder: Path

    def __call__(self, table: Table) -> Table:
        """Return the table, noted."""
        return _NotedTable(table, self.folder / f"{os.getpid()}-{uuid.uuid4().hex}")

    def count(self) -> int:
        """Return how many transactions there were so far."""
        return sum(entry.stat().st_size for entry in os.scandir(self.folder))


class _NotedTable(InterceptedTable):
    def __init__(self, table: Table, file: Path) -> None:
        super().__init__(table)
        self._notes = file.open("ab", buffering=0)

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        """Note the transaction when it is done."""
        etags = await super().transact(partition_key, operations)
        self._notes.write(b".")
        return etags
