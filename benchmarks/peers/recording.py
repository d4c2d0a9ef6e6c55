"""The requests of a batch on a table service: recorded once, so that bare clients can send the same ones.

What a batch sends is recorded at the table port, where each call is one request: for each stream the query, and the
transaction with its rows and their properties, to the byte.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from benchmarks.contender import Setting
from benchmarks.contenders.consistent_network import ConsistentAzurite
from benchmarks.logs import Log
from benchmarks.processes import own_process
from eventstore import Operation, Page, Table
from runtime.batch_options import Wrap


@dataclass(frozen=True, slots=True)
class Query:
    """A query for the rows of a partition, from one row key to another."""

    partition_key: str
    first: str
    last: str
    select: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction in one partition."""

    partition_key: str
    operations: tuple[Operation, ...]


Request = Query | Transaction
Streams = list[list[Request]]
"""The requests of each stream in their order."""


def recorded(log: Log, setting: Setting) -> Streams:
    """Return the requests of a batch with this log on Azurite. The batch runs once for all contenders."""
    return requests_in(record_once("requests", ConsistentAzurite, Recorder, log, setting))


def record_once(
    what: str, batch: Callable[[Setting], Any], recorder: Callable[[Path], Wrap], log: Log, setting: Setting
) -> Path:
    """Return the folder in which the workers of a batch recorded, and run the batch unless it has run."""
    folder = setting.shared / f"{what}-of-{log.folder.name}"
    if not folder.is_dir():
        with own_process() as process:
            process.submit(_record, batch, recorder(folder), log, replace(setting, folder=folder)).result()
    return folder


def requests_in(folder: Path) -> Streams:
    """Return the requests of each stream that were recorded in a folder."""
    streams: dict[str, list[Request]] = {}
    for file in sorted(folder.glob("*.pickle")):
        for request in _read(file):
            streams.setdefault(request.partition_key, []).append(request)
    return list(streams.values())


def _record(make: Callable[[Setting], Any], recorder: Wrap, log: Log, setting: Setting) -> None:
    setting.folder.mkdir(parents=True)
    batch = make(setting)
    batch.start()
    batch.prepare(log, setting.folder)
    try:
        batch.run(wrap=recorder)
    finally:
        batch.finish()
        batch.close()


@dataclass(frozen=True)
class Recorder:
    """Puts a recording table around the table of each worker."""

    folder: Path

    def __call__(self, table: Table) -> Table:
        """Return the table, recorded in a file of this process."""
        file = (self.folder / f"{os.getpid()}.pickle").open("ab", buffering=0)
        return cast("Table", _RecordingTable(table, file))


class _RecordingTable:
    """A table that writes down what it is asked, and passes it on."""

    def __init__(self, table: Table, file: BinaryIO) -> None:
        self._table = table
        self._file = file

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else a table has
        return getattr(self._table, name)

    async def query(
        self,
        partition_key: str,
        first: str,
        last: str,
        *,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        self._write(Query(partition_key, first, last, None if select is None else tuple(select)))
        return await self._table.query(partition_key, first, last, select=select, continuation=continuation)

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        plain = tuple(replace(operation, properties=dict(operation.properties)) for operation in operations)
        self._write(Transaction(partition_key, plain))
        return await self._table.transact(partition_key, operations)

    def _write(self, request: Request) -> None:
        self._file.write(pickle.dumps(request))


def _read(file: Path) -> Iterator[Request]:
    with file.open("rb") as source:
        while source.peek(1):
            yield pickle.load(source)  # noqa: S301 - written by this run
