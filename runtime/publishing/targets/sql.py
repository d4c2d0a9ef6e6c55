"""What the targets in SQL have in common: a table for each message type, and one for the markers of slices.

A slice is one transaction: first its marker, whose primary key lets one transaction in, then its outputs, each inserted
or updated by its id. So a slice that was sent twice is there once, and so is an output of two batches.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from runtime.errors import TargetError, TargetUnavailableError, UsageError
from runtime.publishing.publisher import CommittedOutput, Promise, Record, SliceName

MARKERS = "consistent_slices"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_COLUMNS = (
    "message_id", "type", "business_id", "handler", "body", "sequence", "enqueued_at", "headers", "batch_id",
)  # fmt: skip
_KEPT = ("message_id", "batch_id")
"""What stays when an output is sent again: `batch_id` is the batch that brought it first."""

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a database calls its types, and marks a parameter."""

    parameter: str
    number: str
    time: str
    json: str


@dataclass(frozen=True)
class Tables:
    """The tables that outputs go to, and the statements on them."""

    dialect: Dialect
    names: Mapping[str, str]
    batch_id: str

    def table_of(self, type_: str) -> str:
        """Return the table of a message type, quoted. Raises `UsageError` for a name that none can have."""
        name = self.names.get(type_, type_)
        parts = name.split(".")
        if not all(map(_NAME.fullmatch, parts)) or name == MARKERS:
            message = f"{name!r} cannot be the name of a table: choose another with --map {type_}=NAME."
            raise UsageError(message)
        return ".".join(f'"{part}"' for part in parts)

    def creations(self, types: Collection[str]) -> Iterator[str]:
        """Give the statements that make the tables which are not there."""
        yield (
            f"CREATE TABLE IF NOT EXISTS {MARKERS} (publication TEXT NOT NULL, slice INTEGER NOT NULL, "
            f"PRIMARY KEY (publication, slice))"
        )
        for table in sorted({self.table_of(each) for each in types}):
            yield (
                f"CREATE TABLE IF NOT EXISTS {table} (message_id TEXT PRIMARY KEY, type TEXT NOT NULL, "
                f"business_id TEXT NOT NULL, handler TEXT NOT NULL, body {self.dialect.json} NOT NULL, "
                f"sequence {self.dialect.number} NOT NULL, enqueued_at {self.dialect.time} NOT NULL, "
                f"headers {self.dialect.json} NOT NULL, batch_id TEXT NOT NULL)"
            )

    def marking(self) -> str:
        """Return the statement that inserts a marker, or nothing when it is there."""
        sign = self.dialect.parameter
        return f"INSERT INTO {MARKERS} (publication, slice) VALUES ({sign}, {sign}) ON CONFLICT DO NOTHING"

    def upserts(self, outputs: Sequence[CommittedOutput]) -> Iterator[tuple[str, list[Row]]]:
        """Give statements with the rows for each, in the order of the outputs."""
        for type_, some in groupby(outputs, attrgetter("type")):
            yield self._upsert(self.table_of(type_)), [self._row(each) for each in some]

    def _upsert(self, table: str) -> str:
        signs = ", ".join([self.dialect.parameter] * len(_COLUMNS))
        changes = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name not in _KEPT)
        return (
            f"INSERT INTO {table} ({', '.join(_COLUMNS)}) VALUES ({signs}) "
            f"ON CONFLICT (message_id) DO UPDATE SET {changes}"
        )

    def _row(self, output: CommittedOutput) -> Row:
        return (
            output.message_id, output.type, output.business_id, output.handler, output.body, output.sequence,
            output.enqueued_at.isoformat(), json.dumps(dict(output.headers)), self.batch_id,
        )  # fmt: skip


# An SQLite file as a target: exactly once, by one transaction a slice.
#
# A transaction holds the lock of the file, so one publisher at a time works, in a thread of its own.

T = TypeVar("T")

_FILE = "sqlite:///"
_BUSY_SECONDS = 60.0
_DIALECT = Dialect(parameter="?", number="INTEGER", time="TEXT", json="TEXT")


class SqliteTarget:
    """An SQLite file, which is made when it is not there."""

    promise: Promise = Promise.EXACTLY_ONCE
    chunk = 1_000
    publishers: int | None = 1
    window: timedelta | None = None

    def __init__(self, url: str, names: Mapping[str, str], batch_id: str) -> None:
        if not url.startswith(_FILE) or url == _FILE:
            raise UsageError("An SQLite file as a target is written sqlite:///FILE.")
        self.path = Path(url.removeprefix(_FILE)).absolute()
        self.name = f"{_FILE}{self.path}"
        self.identity = f"{self.name} {sorted(names.items())}"
        self._tables = Tables(_DIALECT, names, batch_id)

    async def prepare(self, types: Collection[str]) -> None:
        """Make the tables that are not there."""
        statements = list(self._tables.creations(types))
        with _explained(self.name), closing(_connected(self.path)) as connection:
            for statement in statements:
                connection.execute(statement)

    def publisher(self) -> SqlitePublisher:
        """Return a publisher."""
        return SqlitePublisher(self.path, self.name, self._tables)


class SqlitePublisher:
    """Sends slices to an SQLite file."""

    def __init__(self, path: Path, name: str, tables: Tables) -> None:
        self._path = path
        self._name = name
        self._tables = tables
        self._thread = ThreadPoolExecutor(1)
        self._connection: sqlite3.Connection | None = None

    async def open(self, name: SliceName) -> bool:
        """Begin a transaction, which waits for that of anybody else, and insert the marker of the slice in it."""

        def begin(connection: sqlite3.Connection) -> bool:
            connection.execute("BEGIN IMMEDIATE")
            is_new = connection.execute(self._tables.marking(), name[:2]).rowcount == 1
            if not is_new:
                connection.execute("ROLLBACK")
            return is_new

        return await self._in_thread(begin)

    async def send(self, outputs: Sequence[CommittedOutput]) -> Sequence[Record]:
        """Insert outputs, or update them by their ids."""

        def upsert(connection: sqlite3.Connection) -> None:
            for statement, rows in self._tables.upserts(outputs):
                connection.executemany(statement, rows)

        await self._in_thread(upsert)
        return ()

    async def commit(self) -> None:
        """Commit the outputs with the marker."""
        await self._in_thread(lambda connection: connection.execute("COMMIT"))

    async def roll_back(self) -> None:
        """Roll the transaction back, if there is one."""
        await self._in_thread(lambda connection: connection.rollback())

    async def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            await self._in_thread(lambda connection: connection.close())
        self._thread.shutdown()

    async def _in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something after what was begun before, although that may have been cancelled."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(self._work, work))

    def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with _explained(self._name):
            if self._connection is None:
                self._connection = _connected(self._path)
            return work(self._connection)


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        is_busy = error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
        kind = TargetUnavailableError if is_busy else TargetError
        raise kind(f"{name}: {error}.") from error
    except sqlite3.Error as error:
        raise TargetError(f"{name}: {error}.") from error
