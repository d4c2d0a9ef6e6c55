"""Tables in one SQLite file: no server, safe for several processes of one machine.

Writes are immediate transactions on a write-ahead log. They survive the death of the process at once, and
a power cut from the next `barrier` on. Calls never suspend. A file in use has two companions, `-wal` and
`-shm`: copy or move the three of them together, and only when nobody has the file open.

Each table has its keys in one SQL table and the properties in another, so that a key is stored once and
large rows share no page with keys.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgpack

from eventstore.backends.naming import table_name
from eventstore.backends.packing import large_bytes, select_from, unpack, unpack_small
from eventstore.backends.sqlite_changes import CheckedTransaction
from eventstore.backends.sqlite_file import SqliteFile
from eventstore.backends.sqlite_statements import BARRIER, BETWEEN_KEYS, Statements
from eventstore.errors import StoreUnavailableError, StoreUrlError, TableNotFoundError
from eventstore.keys import escape, escape_bound, unescape
from eventstore.port import (
    PAGE_SIZE,
    Operation,
    Page,
    Row,
    Scope,
    Store,
    Table,
    Transaction,
    TransactionResult,
    Value,
)

_DAMAGED = (ValueError, TypeError, OverflowError, msgpack.exceptions.UnpackException)
_Found = list[tuple[str, int, datetime | None, dict[str, Value]]]
_URL = "sqlite:///"
_PAGE_BYTES = 4 * 2**20
"""When a page of all rows ends although it has few: as with a table service, it is to fit into memory."""


class SqliteTable(Table):
    """A table in a SQLite file."""

    scope: Scope = "machine"

    def __init__(self, file: SqliteFile, name: str, store_url: str = "") -> None:
        self.name = name
        self.store_url = store_url
        self._file = file
        self._sql = Statements(name)

    async def get(self, partition_key: str, row_key: str) -> Row | None:
        found = self._read(self._sql.get, (escape(partition_key), escape(row_key)))
        if not found:
            return None
        ((_, etag, time, properties),) = found
        return Row(partition_key, row_key, str(etag), properties, time)

    async def query(
        self,
        partition_key: str,
        first: str,
        last: str,
        *,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        stored_key, low, high = escape(partition_key), escape_bound(first), escape_bound(last)
        bounds = (stored_key, low if continuation is None else continuation, high)
        found = self._read(self._sql.query, bounds) if select is None else self._project_first(bounds, select)
        rows = [
            Row(partition_key, unescape(key), str(etag), values, time)
            for key, etag, time, values in found[:PAGE_SIZE]
        ]
        return Page(tuple(rows), found[PAGE_SIZE][0] if len(found) > PAGE_SIZE else None)

    async def scan(
        self,
        row_key: str | None,
        first: str = "",
        last: str | None = None,
        *,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        low, high = escape_bound(first), self._last_partition() if last is None else escape_bound(last)
        if row_key is None:
            return self._scan_all(low, high, select, continuation)
        bounds = (escape(row_key), low if continuation is None else continuation, high)
        if select is None:
            found = self._read(self._sql.scan, bounds)
        else:
            found = self._project(self._sql.project_scan, bounds, select)
        rows = [
            Row(unescape(key), row_key, str(etag), values, time)
            for key, etag, time, values in found[:PAGE_SIZE]
        ]
        return Page(tuple(rows), found[PAGE_SIZE][0] if len(found) > PAGE_SIZE else None)

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        checked = CheckedTransaction.of(partition_key, operations)
        with self._file.writing() as connection:
            return checked.carry_out(connection, self._sql)

    async def transact_each(self, transactions: Sequence[Transaction]) -> list[TransactionResult]:
        """Carry out several transactions in one of SQLite's, each undone by itself when it is refused."""
        checked = [_checked(transaction) for transaction in transactions]
        with self._file.writing() as connection:
            return [
                each.attempt(connection, self._sql) if isinstance(each, CheckedTransaction) else each
                for each in checked
            ]

    async def barrier(self) -> None:
        """Make one commit that waits for the disk.

        Commits are appended to one write-ahead log, and waiting for this one writes out the whole log up to
        it. Commits that are no longer in the log were written out with the database by a checkpoint.
        """
        connection = self._file.connection()
        execute = connection.statement.execute
        try:
            execute("PRAGMA synchronous=FULL")
            try:
                execute(BARRIER)
            finally:
                execute("PRAGMA synchronous=NORMAL")
        except sqlite3.Error as error:
            raise self._file.explained(error, outcome_unknown=True) from error

    async def scrub(self) -> None:
        """Write the database anew, without free pages, and empty the write-ahead log."""
        execute = self._file.connection().statement.execute
        try:
            execute("VACUUM")
            (is_blocked, _, _) = execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            raise self._file.explained(error) from error
        if is_blocked:
            raise StoreUnavailableError(
                f"The write-ahead log of {self._file.path} still holds what was deleted: somebody else reads the file."
            )

    def make(self) -> None:
        """Make the table when it is not there."""
        self._file.make_tables(self._sql.rows_table, self._sql.make)
        self._file.add_column(self._sql.rows_table, "time", self._sql.add_times)

    def is_there(self) -> bool:
        """Say whether the file and the table are there; make neither."""
        if not (self._file.path.exists() and self._file.has_table(self._sql.rows_table)):
            return False
        self._file.add_column(self._sql.rows_table, "time", self._sql.add_times)
        return True

    def _scan_all(self, low: str, high: str, select: Sequence[str] | None, continuation: str | None) -> Page:
        place = (low, "") if continuation is None else continuation.split(BETWEEN_KEYS)
        bounds = (low, high, *place)
        if select is None:
            found, following = self._read_some(self._sql.scan_all, bounds)
        else:
            found = self._project(self._sql.project_scan_all, bounds, select)
            following = found[PAGE_SIZE][0] if len(found) > PAGE_SIZE else None
        rows = []
        for both, etag, time, values in found[:PAGE_SIZE]:
            partition_key, row_key = map(unescape, both.split(BETWEEN_KEYS))
            rows.append(Row(partition_key, row_key, str(etag), values, time))
        return Page(tuple(rows), following)

    def _read_some(self, sql: str, bounds: tuple[str, ...]) -> tuple[_Found, str | None]:
        """Read rows until they fill a page; return also the key of the next row, None when there is none."""
        found: _Found = []
        size = 0
        try:
            # A cursor of its own: closing it ends the read, of which the rest is left.
            with closing(self._file.connection().execute(sql, bounds)) as cursor:
                for key, etag, time, small, large in cursor:
                    if len(found) == PAGE_SIZE or size >= _PAGE_BYTES:
                        return found, key
                    size += len(small) + len(large or b"")
                    found.append((key, etag, _as_datetime(time), unpack(small, large)))
        except sqlite3.Error as error:
            raise self._file.explained(error) from error
        except _DAMAGED as error:
            raise self._damaged(bounds) from error
        return found, None

    def _read(self, sql: str, bounds: tuple[str, ...]) -> _Found:
        try:
            found = self._file.connection().statement.execute(sql, bounds).fetchall()
            return [
                (key, etag, _as_datetime(time), unpack(small, large))
                for key, etag, time, small, large in found
            ]
        except sqlite3.Error as error:
            raise self._file.explained(error) from error
        except _DAMAGED as error:
            raise self._damaged(bounds) from error

    def _project_first(self, bounds: tuple[str, str, str], select: Sequence[str]) -> _Found:
        """Read rows in one statement, if that gives all large properties that are asked for.

        It gives those of the row with the lowest key, the header of a stream or the first of some events, unless they
        are very large.
        """
        rows: _Found = []
        try:
            found = self._file.connection().statement.execute(self._sql.project_first, (bounds[1], *bounds))
            for key, etag, time, small, along in found.fetchall():
                properties, places = unpack_small(small)
                large = along or b""
                if places and large_bytes(places, select) > len(large):
                    break
                values = select_from(properties, places, large, select)
                rows.append((key, etag, _as_datetime(time), values))
            else:
                return rows
        except sqlite3.Error as error:
            raise self._file.explained(error) from error
        except _DAMAGED as error:
            raise self._damaged(bounds) from error
        return self._project(self._sql.project, bounds, select)

    def _project(self, sql: str, bounds: tuple[str, ...], select: Sequence[str]) -> _Found:
        connection = self._file.connection()
        table = self._sql.rows_table
        rows: _Found = []
        try:
            # One transaction, because large parts are read after the small ones.
            connection.statement.execute("BEGIN")
            for key, etag, time, small, row_id in connection.statement.execute(sql, bounds).fetchall():
                properties, places = unpack_small(small)
                needed = large_bytes(places, select) if places else 0
                large = connection.read_large(table, row_id, needed) if needed else b""
                values = select_from(properties, places, large, select)
                rows.append((key, etag, _as_datetime(time), values))
        except sqlite3.Error as error:
            raise self._file.explained(error) from error
        except _DAMAGED as error:
            raise self._damaged(bounds) from error
        finally:
            connection.roll_back()
        return rows

    def _last_partition(self) -> str:
        try:
            (last,) = self._file.connection().statement.execute(self._sql.last_partition).fetchone()
        except sqlite3.Error as error:
            raise self._file.explained(error) from error
        return last or ""

    def _damaged(self, bounds: tuple[str, ...]) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"The file {self._file.path} is damaged: a row at {bounds} cannot be read."
        )


class SqliteStore(Store):
    """Tables in one SQLite file."""

    scope: Scope = "machine"

    def __init__(self, url: str) -> None:
        self.url = url
        self._file = SqliteFile(_path(url))

    async def table(self, name: str, *, make: bool = True) -> SqliteTable:
        table = SqliteTable(self._file, table_name(name), self.url)
        if make:
            table.make()
        elif not table.is_there():
            raise TableNotFoundError(name, self.url)
        return table

    def is_replaced(self) -> bool:
        """Say whether the file that is open was deleted, or another one is in its place."""
        return self._file.is_replaced()

    async def close(self) -> None:
        """Close the connections that this process opened; a later call opens a new one."""
        self._file.close()


def _checked(transaction: Transaction) -> CheckedTransaction | Exception:
    try:
        return CheckedTransaction.of(*transaction)
    except Exception as error:  # noqa: BLE001 - any error of this transaction is its result
        return error


def _as_datetime(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime.fromtimestamp(microseconds / 1_000_000, UTC)


def _path(url: str) -> Path:
    """Return the file that `sqlite:///relative` or `sqlite:////absolute` names."""
    name = url.removeprefix(_URL)
    if not url.startswith(_URL) or not name or name.startswith(":memory:") or "\0" in name:
        raise StoreUrlError(
            f"{url!r} names no file: write sqlite:///relative.db or sqlite:////absolute/path.db."
        )
    return Path(name).absolute()
