"""Tables in one SQLite file: no server, safe for several processes of one machine.

Writes are immediate transactions on a write-ahead log. They survive the death of the process at once, and
a power cut from the next `barrier` on. Calls never suspend. A file in use has two companions, `-wal` and
`-shm`: copy or move the three of them together, and only when no process has the file open.

Each table has its keys in one SQL table and the properties in another, so that a key is stored once and
large rows share no page with keys.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from time import time_ns
from typing import Concatenate, ParamSpec, TypeVar

import msgpack

from eventstore.backends.sqlite_file import (
    SqliteConnection,
    SqliteFile,
    large_bytes,
    select_from,
    unpack,
    unpack_small,
)
from eventstore.errors import (
    RowChangedError,
    RowExistsError,
    RowNotFoundError,
    StoreUnavailableError,
    StoreUrlError,
    TableNotFoundError,
)
from eventstore.keys import escape, escape_bound, table_name, unescape
from eventstore.limits import merge, prepare
from eventstore.port import (
    ANY_ETAG,
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
    Verb,
)

P = ParamSpec("P")
T = TypeVar("T")

_URL = "sqlite:///"
_DAMAGED = (ValueError, TypeError, OverflowError, msgpack.exceptions.UnpackException)
_Found = list[tuple[str, int, datetime | None, dict[str, Value]]]
"""Rows as key, ETag, time and properties. The key is that of the row, of the partition, or both."""

_BETWEEN_KEYS = "\t"
"""Separates a partition key and a row key; within a stored key it is escaped."""

_PAGE_BYTES = 4 * 2**20
"""The size at which a page of all rows ends: as with a table service, it is to fit into memory."""

_ALONG_BYTES = 64 * 2**10
"""Up to this size the large part of a first row is read along with the small one."""

_KEY_COLUMNS = "partition TEXT NOT NULL, row TEXT NOT NULL, id INTEGER NOT NULL"
_ROW_COLUMNS = "id INTEGER PRIMARY KEY, etag INTEGER NOT NULL, time INTEGER, small BLOB NOT NULL, large BLOB"
_LARGEST_ETAG = 2**63 - 1
_MAKE_BARRIER = (
    "CREATE TABLE IF NOT EXISTS eventstore_barrier (id INTEGER PRIMARY KEY, commits INTEGER NOT NULL)"
)
_BARRIER = (
    "INSERT INTO eventstore_barrier (id, commits) VALUES (1, 1) "
    "ON CONFLICT (id) DO UPDATE SET commits = commits + 1"
)


class Statements:
    """The SQL for one table of the store. Each text is made once, so that `sqlite3` finds it in its cache.

    Column order matters: `large` stands last, so that reading the columns before it does not read its pages.
    """

    def __init__(self, name: str) -> None:
        keys, rows = f'"{name}_keys"', f'"{name}_rows"'
        joined = f"FROM {keys} AS k CROSS JOIN {rows} AS r ON r.id = k.id WHERE"
        this_id = f"(SELECT id FROM {keys} WHERE partition = ? AND row = ?)"
        limit = f"LIMIT {PAGE_SIZE + 1}"
        in_range = f"{joined} k.partition = ? AND k.row >= ? AND k.row <= ? ORDER BY k.row {limit}"
        in_partitions = (
            f"{joined} k.row = ? AND k.partition >= ? AND k.partition <= ? ORDER BY k.partition {limit}"
        )
        in_order = (
            f"{joined} k.partition >= ? AND k.partition <= ? AND (k.partition, k.row) >= (?, ?) "
            f"ORDER BY k.partition, k.row {limit}"
        )
        both_keys = f"k.partition || '{_BETWEEN_KEYS}' || k.row"
        large_of_first = f"CASE WHEN k.row = ? AND length(r.large) <= {_ALONG_BYTES} THEN r.large END"

        def columns(key: str, large: str) -> str:
            return f"SELECT {key}, r.etag, r.time, r.small, {large}"

        self.rows_table = f"{name}_rows"
        self.make = (
            _MAKE_BARRIER,
            f"CREATE TABLE IF NOT EXISTS {keys} ({_KEY_COLUMNS}, PRIMARY KEY (partition, row)) WITHOUT ROWID",
            f"CREATE TABLE IF NOT EXISTS {rows} ({_ROW_COLUMNS})",
        )
        self.get = f"{columns('k.row', 'r.large')} {joined} k.partition = ? AND k.row = ?"
        self.query = f"{columns('k.row', 'r.large')} {in_range}"
        self.project = f"{columns('k.row', 'r.id')} {in_range}"
        self.project_first = f"{columns('k.row', large_of_first)} {in_range}"
        self.scan = f"{columns('k.partition', 'r.large')} {in_partitions}"
        self.project_scan = f"{columns('k.partition', 'r.id')} {in_partitions}"
        self.scan_all = f"{columns(both_keys, 'r.large')} {in_order}"
        self.project_scan_all = f"{columns(both_keys, 'r.id')} {in_order}"
        self.last_partition = f"SELECT max(partition) FROM {keys}"

        self.insert_row = f"INSERT INTO {rows} (etag, time, small, large) VALUES (?, ?, ?, ?)"
        self.delete_row = f"DELETE FROM {rows} WHERE id = ?"
        self.insert_key = f"INSERT INTO {keys} (partition, row, id) VALUES (?, ?, ?)"
        self.update = f"UPDATE {rows} SET etag = ?, time = ?, small = ?, large = ? WHERE id = {this_id}"
        self.update_if = f"{self.update} AND etag = ?"
        self.delete_key = f"DELETE FROM {keys} WHERE partition = ? AND row = ?"
        self.delete = f"DELETE FROM {rows} WHERE id = {this_id}"
        self.delete_if = f"{self.delete} AND etag = ?"


@dataclass(slots=True)
class CheckedTransaction:
    """A transaction that is within all limits, with its keys and properties as they are stored."""

    operations: Sequence[Operation]
    partition: str
    rows: list[str]
    properties: list[dict[str, Value]]

    @classmethod
    def of(cls, partition_key: str, operations: Sequence[Operation]) -> CheckedTransaction:
        """Check a transaction. Raises what `transact` raises before any I/O."""
        properties = prepare(partition_key, operations)
        partition = escape(partition_key)
        return cls(operations, partition, [escape(operation.row_key) for operation in operations], properties)

    def carry_out(self, connection: SqliteConnection, sql: Statements) -> tuple[str, ...]:
        """Carry out all operations, and return the new ETags. Raises the `RowError` of the first that is refused."""
        changes = Changes(connection, sql, self.partition)
        rows, properties = self.rows, self.properties
        return tuple(
            [
                changes.carry_out(index, operation, rows[index], properties[index])
                for index, operation in enumerate(self.operations)
            ]
        )

    def attempt(self, connection: SqliteConnection, sql: Statements) -> TransactionResult:
        """Do the same. When it is refused, undo it alone, and return the error.

        Several operations are in a savepoint; one alone has changed nothing when it is refused.
        """
        execute, several = connection.statement.execute, len(self.operations) > 1
        if several:
            execute("SAVEPOINT one")
        try:
            result: TransactionResult = self.carry_out(connection, sql)
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - any error of this transaction is its result
            result = error
            if several:
                execute("ROLLBACK TO one")
        if several:
            execute("RELEASE one")
        return result


class Changes:
    """Carries out operations on one partition; all rows written get the same new ETag, and the same time."""

    __slots__ = ("_etag", "_pack", "_partition", "_sql", "_statement", "_time")

    def __init__(self, connection: SqliteConnection, sql: Statements, partition: str) -> None:
        self._statement = connection.statement
        self._pack = connection.packer.pack
        self._sql = sql
        self._partition = partition
        self._etag = connection.new_etag()
        self._time = time_ns() // 1000

    def carry_out(self, index: int, operation: Operation, row: str, properties: dict[str, Value]) -> str:
        """Change the row as the operation says, and return its new ETag.

        Raises the `RowError` that tells why the operation is refused; then nothing has changed.
        """
        verb = operation.verb
        if verb is Verb.INSERT:
            self._insert(index, operation, row, properties)
        elif verb is Verb.REPLACE:
            if not self._update(operation.etag, row, properties):
                raise self._refusal(index, operation, row)
        elif verb is Verb.DELETE:
            if not self._delete(operation.etag, row):
                raise self._refusal(index, operation, row)
            return ""
        elif verb is Verb.INSERT_OR_REPLACE:
            if not self._update(ANY_ETAG, row, properties):
                self._insert(index, operation, row, properties)
        else:
            self._merge(index, operation, row, properties)
        return str(self._etag)

    def _insert(self, index: int, operation: Operation, row: str, properties: dict[str, Value]) -> None:
        small, large = self._pack(properties)
        execute = self._statement.execute
        row_id = execute(self._sql.insert_row, (self._etag, self._time, small, large)).lastrowid
        try:
            execute(self._sql.insert_key, (self._partition, row, row_id))
        except sqlite3.IntegrityError:
            execute(self._sql.delete_row, (row_id,))
            raise RowExistsError(operation.row_key, index) from None

    def _update(self, etag: str | None, row: str, properties: dict[str, Value]) -> bool:
        small, large = self._pack(properties)
        values = (self._etag, self._time, small, large, self._partition, row)
        if etag == ANY_ETAG:
            return self._statement.execute(self._sql.update, values).rowcount > 0
        return self._statement.execute(self._sql.update_if, (*values, _number(etag))).rowcount > 0

    def _delete(self, etag: str | None, row: str) -> bool:
        key = (self._partition, row)
        if etag == ANY_ETAG:
            deleted = self._statement.execute(self._sql.delete, key).rowcount
        else:
            deleted = self._statement.execute(self._sql.delete_if, (*key, _number(etag))).rowcount
        if deleted:
            self._statement.execute(self._sql.delete_key, key)
        return deleted > 0

    def _merge(self, index: int, operation: Operation, row: str, properties: dict[str, Value]) -> None:
        found = self._statement.execute(self._sql.get, (self._partition, row)).fetchone()
        if found is None:
            if operation.verb is Verb.MERGE:
                raise RowNotFoundError(operation.row_key, index)
            self._insert(index, operation, row, properties)
            return
        _, etag, _, small, large = found
        if operation.verb is Verb.MERGE and operation.etag not in (ANY_ETAG, str(etag)):
            raise RowChangedError(operation.row_key, index)
        self._update(ANY_ETAG, row, merge(unpack(small, large), properties))

    def _refusal(self, index: int, operation: Operation, row: str) -> RowChangedError | RowNotFoundError:
        found = self._statement.execute(self._sql.get, (self._partition, row)).fetchone()
        return (RowNotFoundError if found is None else RowChangedError)(operation.row_key, index)


def _number(etag: str | None) -> int:
    """Return the number that an ETag stands for; -1, which no row has, when it stands for none."""
    if etag is None or not etag.isdecimal() or len(etag) > len(str(_LARGEST_ETAG)):
        return -1
    number = int(etag)
    # Zeros before a number, or digits of another script, make another text.
    return number if number <= _LARGEST_ETAG and str(number) == etag else -1


def _translating(
    read: Callable[Concatenate[SqliteTable, P], T],
) -> Callable[Concatenate[SqliteTable, P], T]:
    """Raise the store's errors instead of those of SQLite, and of a row that cannot be decoded."""

    @wraps(read)
    def call(self: SqliteTable, /, *args: P.args, **named: P.kwargs) -> T:
        try:
            return read(self, *args, **named)
        except sqlite3.Error as error:
            raise self._file.explained(error) from error
        except _DAMAGED as error:
            raise StoreUnavailableError(
                f"The file {self._file.path} is damaged: a row at {args[1:]} cannot be read."
            ) from error

    return call


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
        if select is None:
            found = self._read(self._sql.query, bounds)
        else:
            along = self._project_first(self._sql.project_first, bounds, select)
            found = self._project(self._sql.project, bounds, select) if along is None else along
        found, following = _cut(found)
        rows = [
            Row(partition_key, unescape(key), str(etag), values, time) for key, etag, time, values in found
        ]
        return Page(tuple(rows), following)

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
            place = (low, "") if continuation is None else continuation.split(_BETWEEN_KEYS)
            bounds: tuple[str, ...] = (low, high, *place)
            if select is None:
                found, following = self._read_some(self._sql.scan_all, bounds)
            else:
                found, following = _cut(self._project(self._sql.project_scan_all, bounds, select))
            rows = []
            for both, etag, time, values in found:
                partition_key, key = map(unescape, both.split(_BETWEEN_KEYS))
                rows.append(Row(partition_key, key, str(etag), values, time))
            return Page(tuple(rows), following)
        bounds = (escape(row_key), low if continuation is None else continuation, high)
        if select is None:
            found, following = _cut(self._read(self._sql.scan, bounds))
        else:
            found, following = _cut(self._project(self._sql.project_scan, bounds, select))
        rows = [Row(unescape(key), row_key, str(etag), values, time) for key, etag, time, values in found]
        return Page(tuple(rows), following)

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
        execute = self._file.connection().statement.execute
        try:
            execute("PRAGMA synchronous=FULL")
            try:
                execute(_BARRIER)
            finally:
                execute("PRAGMA synchronous=NORMAL")
        except sqlite3.Error as error:
            raise self._file.explained(error, outcome_unknown=True) from error

    async def scrub(self) -> None:
        """Rewrite the database without free pages, and empty the write-ahead log."""
        if self._vacuum():
            raise StoreUnavailableError(
                f"The write-ahead log of {self._file.path} still holds deleted rows: another process reads the file."
            )

    @_translating
    def _vacuum(self) -> bool:
        """Return whether the log could not be emptied."""
        execute = self._file.connection().statement.execute
        execute("VACUUM")
        (is_blocked, _, _) = execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return bool(is_blocked)

    def make(self) -> None:
        """Make the table when it is not there."""
        self._file.make_tables(self._sql.rows_table, self._sql.make)

    def is_there(self) -> bool:
        """Return whether the file and the table are there; make neither."""
        return self._file.path.exists() and self._file.has_table(self._sql.rows_table)

    @_translating
    def _read(self, sql: str, bounds: tuple[str, ...]) -> _Found:
        found = self._file.connection().statement.execute(sql, bounds).fetchall()
        return [
            (key, etag, _as_datetime(time), unpack(small, large)) for key, etag, time, small, large in found
        ]

    @_translating
    def _read_some(self, sql: str, bounds: tuple[str, ...]) -> tuple[_Found, str | None]:
        """Read rows until they fill a page; return also the key of the next row, None when there is none."""
        found: _Found = []
        size = 0
        # A cursor of its own: closing it ends the read, of which the rest is left.
        with closing(self._file.connection().execute(sql, bounds)) as cursor:
            for key, etag, time, small, large in cursor:
                if len(found) == PAGE_SIZE or size >= _PAGE_BYTES:
                    return found, key
                size += len(small) + len(large or b"")
                found.append((key, etag, _as_datetime(time), unpack(small, large)))
        return found, None

    @_translating
    def _project_first(self, sql: str, bounds: tuple[str, str, str], select: Sequence[str]) -> _Found | None:
        """Read rows in one statement, if that gives all large properties that are asked for, else None.

        It gives those of the row with the lowest key, the header of a stream or the first of some events, unless they
        are very large.
        """
        rows: _Found = []
        found = self._file.connection().statement.execute(sql, (bounds[1], *bounds))
        for key, etag, time, small, along in found.fetchall():
            properties, places = unpack_small(small)
            large = along or b""
            if places and large_bytes(places, select) > len(large):
                return None
            rows.append((key, etag, _as_datetime(time), select_from(properties, places, large, select)))
        return rows

    @_translating
    def _project(self, sql: str, bounds: tuple[str, ...], select: Sequence[str]) -> _Found:
        connection = self._file.connection()
        execute = connection.statement.execute
        rows: _Found = []
        try:
            # One transaction, because large parts are read after the small ones.
            execute("BEGIN")
            for key, etag, time, small, row_id in execute(sql, bounds).fetchall():
                properties, places = unpack_small(small)
                needed = large_bytes(places, select) if places else 0
                large = connection.read_large(self._sql.rows_table, row_id, needed) if needed else b""
                rows.append((key, etag, _as_datetime(time), select_from(properties, places, large, select)))
        finally:
            connection.roll_back()
        return rows

    @_translating
    def _last_partition(self) -> str:
        (last,) = self._file.connection().statement.execute(self._sql.last_partition).fetchone()
        return last or ""


def _cut(found: _Found) -> tuple[_Found, str | None]:
    """Return the rows of a page, and the key of the next row."""
    return found[:PAGE_SIZE], found[PAGE_SIZE][0] if len(found) > PAGE_SIZE else None


def _checked(transaction: Transaction) -> CheckedTransaction | Exception:
    try:
        return CheckedTransaction.of(*transaction)
    except Exception as error:  # noqa: BLE001 - any error of this transaction is its result
        return error


def _as_datetime(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)


class SqliteStore(Store):
    """Tables in one SQLite file: `sqlite:///relative` or `sqlite:////absolute`."""

    scope: Scope = "machine"

    def __init__(self, url: str) -> None:
        name = url.removeprefix(_URL)
        if not url.startswith(_URL) or not name or name.startswith(":memory:") or "\0" in name:
            raise StoreUrlError(
                f"{url!r} names no file: write sqlite:///relative.db or sqlite:////absolute/path.db."
            )
        self.url = url
        self._file = SqliteFile(Path(name).absolute())

    async def table(self, name: str, *, make: bool = True) -> SqliteTable:
        table = SqliteTable(self._file, table_name(name), self.url)
        if make:
            table.make()
        elif not table.is_there():
            raise TableNotFoundError(name, self.url)
        return table

    def is_replaced(self) -> bool:
        """Return whether the file that is open was deleted, or another one is in its place."""
        return self._file.is_replaced()

    async def close(self) -> None:
        """Close the connections that this process opened; a later call opens a new one."""
        self._file.close()
