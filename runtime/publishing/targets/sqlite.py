"""An SQLite file as a target: exactly once, by one transaction a slice.

A transaction holds the lock of the file, so one publisher at a time works, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from runtime.errors import TargetError, TargetUnavailableError, UsageError
from runtime.publishing.publisher import Promise, Record, SliceName
from runtime.publishing.slices import CommittedOutput
from runtime.publishing.targets.sql import Dialect, Tables

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
