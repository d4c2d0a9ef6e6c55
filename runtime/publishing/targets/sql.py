"""SQL databases as targets: a table for each message type, and a table for the markers of slices.

A slice is one transaction, which inserts its marker and upserts its outputs. A refused row becomes a dead letter.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from eventstore.backends.sqlite import FORMAT
from runtime.errors import TargetError, TargetUnavailableError, UsageError
from runtime.publishing import publisher
from runtime.publishing.publisher import CommittedOutput, Promise, Record, SliceName, Target, TargetOptions

MARKERS = "consistent_slices"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_COLUMNS = (
    "message_id", "type", "business_id", "handler", "body", "sequence", "enqueued_at", "headers", "batch_id",
)  # fmt: skip
HINT = " If the table has another purpose, choose another one with --map TYPE=NAME."
_KEPT = ("message_id", "batch_id")  # not changed by an update: `batch_id` is the first batch with the output


class SqlTarget(Target):
    """A database. Subclasses override the dialect, that is, the parameter marker and the column types."""

    promise = Promise.EXACTLY_ONCE
    parameter = "?"
    number = "INTEGER"
    time = "TEXT"
    json = "TEXT"

    def table_of(self, type_: str) -> str:
        """Return the quoted table name of a message type. Raises `UsageError` for an invalid name."""
        name = self.options.names.get(type_, type_)
        parts = name.split(".")
        if not all(map(_NAME.fullmatch, parts)) or parts[-1].lower() == MARKERS:
            raise UsageError(f"{name!r} is not a valid table name. Choose another with --map {type_}=NAME.")
        return ".".join(f'"{part}"' for part in parts)

    def creations(self, types: Collection[str]) -> list[str]:
        """Return the statements that create missing tables."""
        columns = (
            f"message_id TEXT PRIMARY KEY, type TEXT NOT NULL, business_id TEXT NOT NULL, handler TEXT NOT NULL, "
            f"body {self.json} NOT NULL, sequence {self.number} NOT NULL, enqueued_at {self.time} NOT NULL, "
            f"headers {self.json} NOT NULL, batch_id TEXT NOT NULL"
        )
        tables = sorted({self.table_of(each) for each in types})
        markers = "publication TEXT NOT NULL, slice INTEGER NOT NULL, PRIMARY KEY (publication, slice)"
        return [
            f"CREATE TABLE IF NOT EXISTS {MARKERS} ({markers})",
            *(f"CREATE TABLE IF NOT EXISTS {table} ({columns})" for table in tables),
        ]

    def marking(self) -> str:
        """Return the statement that inserts a marker unless it exists."""
        sign = self.parameter
        return f"INSERT INTO {MARKERS} (publication, slice) VALUES ({sign}, {sign}) ON CONFLICT DO NOTHING"

    def upsert(self, type_: str) -> str:
        """Return the statement that upserts an output of a type."""
        signs = ", ".join([self.parameter] * len(_COLUMNS))
        changes = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name not in _KEPT)
        return (
            f"INSERT INTO {self.table_of(type_)} ({', '.join(_COLUMNS)}) VALUES ({signs}) "
            f"ON CONFLICT (message_id) DO UPDATE SET {changes}"
        )

    def row(self, output: CommittedOutput) -> tuple[object, ...]:
        return (
            output.message_id, output.type, output.business_id, output.handler, output.body, output.sequence,
            output.enqueued_at.isoformat(), json.dumps(dict(output.headers)), self.options.batch_id,
        )  # fmt: skip


_FILE = "sqlite:///"
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_OF_ROW = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG}


class SqliteTarget(SqlTarget):
    """An SQLite file, which is created if it does not exist."""

    publishers = 1  # a transaction locks the file

    def __init__(self, url: str, options: TargetOptions) -> None:
        if not url.startswith(_FILE) or url == _FILE:
            raise UsageError("The URL of the SQLite file is invalid. Use sqlite:///FILE.")
        self.path = Path(url.removeprefix(_FILE)).absolute()
        super().__init__(f"{_FILE}{self.path}", options)

    async def prepare(self, types: Collection[str]) -> None:
        """Create missing tables. Raises `UsageError` for table names that differ only in case."""
        statements = self.creations(types)
        with self.translated_errors(), closing(self.connected()) as connection:
            listing = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
            tables = [name for (name,) in connection.execute(listing)]
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version == FORMAT and any(f"{name.removesuffix('_rows')}_keys" in tables for name in tables):
                raise UsageError(f"{self.name} is a store. Publish to another file.")
            for type_ in sorted(types):
                name = self.table_of(type_).rpartition(".")[2].strip('"')
                other = next((each for each in tables if each.lower() == name.lower() and each != name), None)
                if other is not None:
                    raise UsageError(
                        f"The table {name} in {self.name} conflicts with {other}, as SQLite ignores case. Choose "
                        f"another one with --map {type_}=NAME."
                    )
                tables.append(name)
            for statement in statements:
                connection.execute(statement)

    def publisher(self) -> SqlitePublisher:
        return SqlitePublisher(self)

    def connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self.seconds, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Context manager that converts SQLite errors to `TargetUnavailableError` (file locked) or `TargetError`."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            kind = TargetUnavailableError if code in _BUSY else TargetError
            raise kind(f"{self.name}: {error}.{HINT if code == sqlite3.SQLITE_ERROR else ''}") from error


class SqlitePublisher(publisher.ThreadedPublisher):
    """Sends slices to an SQLite file."""

    def __init__(self, target: SqliteTarget) -> None:
        super().__init__()
        self._target = target
        self._connection: sqlite3.Connection | None = None

    @publisher.in_thread
    def open(self, name: SliceName) -> bool:
        """Begin a transaction and insert the slice's marker. Return False if the marker exists.

        Waits for other transactions.
        """
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            is_new = connection.execute(self._target.marking(), name[:2]).rowcount == 1
            if not is_new:
                connection.execute("ROLLBACK")
            return is_new

    @publisher.in_thread
    def begin(self) -> None:
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")

    @publisher.in_thread
    def send(self, outputs: Sequence[CommittedOutput]) -> Sequence[Record]:
        refused = []
        statements = {type_: self._target.upsert(type_) for type_ in {each.type for each in outputs}}
        with self._connected() as connection:
            for output in outputs:
                statement, row = statements[output.type], self._target.row(output)
                try:
                    connection.execute(statement, row)
                except sqlite3.Error as error:
                    # SQLite undoes only the statement, unless a trigger or constraint of the user rolls back.
                    if (error.sqlite_errorcode & 0xFF) not in _OF_ROW or not connection.in_transaction:
                        raise
                    connection.execute(f"EXPLAIN {statement}", row)  # raises if the table fits no row at all
                    refused.append(Record.of(output, str(error)))
        return refused

    @publisher.in_thread
    def commit(self) -> None:
        with self._connected() as connection:
            connection.execute("COMMIT")

    @publisher.in_thread
    def roll_back(self) -> None:
        with self._connected() as connection:
            connection.rollback()

    async def close(self) -> None:
        if self._connection is not None:
            with self._target.translated_errors():
                await asyncio.get_running_loop().run_in_executor(self.thread, self._connection.close)
        await super().close()

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with self._target.translated_errors():
            self._connection = self._connection or self._target.connected()
            yield self._connection
