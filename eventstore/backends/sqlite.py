"""Tables in one SQLite file: no server, safe for concurrent processes of one machine.

Writes are immediate transactions on a write-ahead log. They survive a crash of the process at once, and a power
failure after the next `barrier`. Calls never suspend. An open file has two companions, `-wal` and `-shm`. Copy or move
the three files together, while no process has them open.

Keys and properties are in separate SQL tables, so a key is stored once, and large rows share no page with keys.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import repeat
from math import inf
from pathlib import Path
from random import Random
from weakref import WeakSet

from eventstore import errors, port
from eventstore.backends import rows as row_format
from eventstore.backends.rows import Dictionaries, Dictionary, StoredRow, etag_number, kind_of, read_page
from eventstore.errors import DamagedRowError, StoreUnavailableError, StoreUrlError
from eventstore.keys import BETWEEN_KEYS, escape, escape_bound, table_name
from eventstore.limits import merge, refusal
from eventstore.port import Bounds, Operation, Page, PageKind, Row, Verb

BUSY_SECONDS = 60
FEWEST_TOGETHER = 8
FORMAT = 1

# NORMAL: a commit does not wait for the disk; `barrier` does. fullfsync makes that reliable on macOS.
_SETTINGS = (
    "PRAGMA synchronous=NORMAL",
    "PRAGMA fullfsync=ON",
    "PRAGMA cache_size=-8000",
    "PRAGMA wal_autocheckpoint=4000",
)
_UNUSABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_PERM,
             sqlite3.SQLITE_AUTH}  # fmt: skip
_WAL_SECONDS = 30
_WAL_PAUSE_SECONDS = 0.1


class SqliteConnection(sqlite3.Connection):
    """A connection for one thread of one process, with a cursor, a packer and a source of ETags."""

    def prepare(self, identity: tuple[int, int] | None) -> None:
        """Set the attributes of a new connection. `identity` is the device and inode of the database file."""
        self.pid = os.getpid()
        self.identity = identity
        self.statement = self.cursor()
        self.packer = row_format.packer()
        self.dictionaries: dict[str, Dictionaries] = {}
        # The tables and dictionaries that this transaction has checked.
        self.checked: set[tuple[str, int]] = set()
        self.etags = Random(os.urandom(32))  # noqa: S311 - must not repeat, need not be secret

    def roll_back(self) -> None:
        if self.in_transaction:
            with suppress(sqlite3.Error):
                self.statement.execute("ROLLBACK")


class SqliteStore(port.Store):
    """Tables in one SQLite file, `sqlite:///relative` or `sqlite:////absolute`, with a connection for each thread."""

    scope: port.Scope = "machine"

    def __init__(self, url: str) -> None:
        name = url.removeprefix("sqlite:///")
        if name == url or not name or name.startswith(":memory:") or "\0" in name:
            raise StoreUrlError(
                f"{url!r} does not name a file: write sqlite:///relative.db or sqlite:////absolute/path.db."
            )
        self.url = url
        self.path = Path(name).absolute()
        self._local = threading.local()
        self._open: WeakSet[SqliteConnection] = WeakSet()

    async def table(self, name: str, *, make: bool = True) -> SqliteTable:
        table = SqliteTable(self, table_name(name))
        if make:
            table.make()
        elif not self.path.exists() or not self.has_table(table.sql.rows_table):
            raise errors.TableNotFoundError(name, self.url)
        return table

    def connection(self) -> SqliteConnection:
        """Return the connection of this thread. The first call in a thread of this process opens it."""
        connection = self._opened()
        if connection is None:
            try:
                connection = self._connect()
            except sqlite3.Error as error:
                raise self.translate_error(error) from error
            except OSError as error:
                raise StoreUrlError(f"The folder of {self.path} cannot be made: {error.strerror}.") from error
            self._local.connection = connection
            self._open.add(connection)
            _connections.add(connection)
        return connection

    def is_replaced(self) -> bool:
        connection = self._opened()
        return connection is not None and _identity(self.path) != connection.identity

    def _opened(self) -> SqliteConnection | None:
        connection: SqliteConnection | None = getattr(self._local, "connection", None)
        return connection if connection is not None and connection.pid == os.getpid() else None

    async def close(self) -> None:
        """Close the connections of this process. Later calls of the tables open new connections."""
        for connection in list(self._open):
            if connection.pid == os.getpid():
                connection.close()
        self._open = WeakSet()
        self._local = threading.local()

    def translate_error(
        self, error: sqlite3.Error, *, outcome_unknown: bool = False
    ) -> errors.EventStoreError:
        """Return the `EventStoreError` for an error of `sqlite3`. `outcome_unknown`: the call may have taken effect."""
        extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        code = extended & 0xFF
        if code in _UNUSABLE:
            is_writable = os.access(self.path.parent, os.W_OK)
            why = "" if is_writable else ". SQLite needs write access to its folder, too"
            return StoreUrlError(f"The file {self.path} cannot be used as a store: {error}{why}.")
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreUnavailableError(f"The file {self.path} was locked for {BUSY_SECONDS} seconds.")
        if code == sqlite3.SQLITE_FULL:
            return StoreUnavailableError(f"The disk of {self.path} is full.")
        what = f"failed: {error}"
        if extended == sqlite3.SQLITE_IOERR_WRITE:
            # SQLite gives no other hint of a quota or a process limit, neither of which is SQLITE_FULL.
            what = f"could not be written ({error}): a quota or a limit on the size of files may be reached"
        return StoreUnavailableError(f"The file {self.path} {what}.", outcome_unknown)

    @contextmanager
    def reading(self, *, outcome_unknown: bool = False) -> Iterator[SqliteConnection]:
        """Context manager that yields the thread's connection and converts `sqlite3` errors to `EventStoreError`s.

        Set `outcome_unknown` if a failed write may still have been committed. The error raised then says so, unless
        the file was locked or the disk is full.
        """
        connection = self.connection()
        try:
            yield connection
        except sqlite3.Error as error:
            raise self.translate_error(error, outcome_unknown=outcome_unknown) from error

    @contextmanager
    def writing(self) -> Iterator[SqliteConnection]:
        """Context manager like `reading`, whose block is an immediate transaction. Any error rolls it back."""
        connection = self.connection()
        execute = connection.statement.execute
        try:
            execute("BEGIN IMMEDIATE")
            connection.checked.clear()
            yield connection
            execute("COMMIT")
        except BaseException as error:
            connection.roll_back()
            if isinstance(error, sqlite3.Error):
                raise self.translate_error(error, outcome_unknown=True) from error
            raise

    def has_table(self, name: str) -> bool:
        with self.reading() as connection:
            cursor = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,))
            return cursor.fetchone() is not None

    def _connect(self) -> SqliteConnection:
        _make_folder(self.path.parent)
        # Only the owner may read the file; SQLite copies its mode to log and index. It reports errors on connecting.
        with suppress(OSError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection = sqlite3.connect(
            self.path,
            timeout=_WAL_PAUSE_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            factory=SqliteConnection,
        )
        try:
            self._switch_to_wal(connection)
            for setting in (*_SETTINGS, f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}"):
                connection.execute(setting)
            self._check_format(connection)
        except BaseException:
            connection.close()
            raise
        connection.prepare(_identity(self.path))
        return connection

    def _switch_to_wal(self, connection: sqlite3.Connection) -> None:
        # SQLite fails at once while another process switches the same new file, and may give up ("locking protocol")
        # while others recover the log of killed processes.
        deadline = time.monotonic() + _WAL_SECONDS
        while True:
            try:
                (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
                break
            except sqlite3.OperationalError as error:
                is_passing = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL)
                if not is_passing or time.monotonic() > deadline:
                    raise
                time.sleep(_WAL_PAUSE_SECONDS)
        if mode != "wal":
            raise StoreUrlError(
                f"The file {self.path} cannot be used as a store: its file system does not support "
                f"SQLite's write-ahead log (the journal mode stays {mode!r})."
            )

    def _check_format(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, FORMAT):
            raise StoreUrlError(
                f"The file {self.path} has the format {version}, but this version reads only {FORMAT}."
            )


def _make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, so that they survive a power failure."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        descriptor = os.open(made.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _leave_connections_alone() -> None:
    """Leak the inherited connections in a forked child, so that it never closes them."""
    # If the child closed one, even at exit, locks of the parent would be released. A leaked reference prevents that.
    import ctypes  # noqa: PLC0415 - forks are rare

    for connection in _held:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    _held.clear()
    _connections.clear()


_connections: WeakSet[SqliteConnection] = WeakSet()
_held: list[SqliteConnection] = []
os.register_at_fork(
    before=lambda: _held.extend(_connections),
    after_in_parent=_held.clear,
    after_in_child=_leave_connections_alone,
)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return (device, inode), or None if the file does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


_KEY_COLUMNS = "partition TEXT NOT NULL, row TEXT NOT NULL, id INTEGER NOT NULL"
# `large` is the last column, so that reading the columns before it skips its pages.
_ROW_COLUMNS = "id INTEGER PRIMARY KEY, etag INTEGER NOT NULL, time INTEGER, small BLOB NOT NULL, large BLOB"
_DICTIONARY_COLUMNS = (
    "number INTEGER PRIMARY KEY, kind TEXT NOT NULL, shared BLOB NOT NULL, size REAL NOT NULL"
)
# Any write will do, since only its fsync matters.
_BARRIER = (
    "INSERT INTO eventstore_barrier (id, commits) VALUES (1, 1) "
    "ON CONFLICT (id) DO UPDATE SET commits = commits + 1"
)


class Statements:
    """The SQL statements for one table. Their texts are constant, so they hit the statement cache of `sqlite3`."""

    def __init__(self, name: str) -> None:
        keys, rows, dictionaries = f'"{name}_keys"', f'"{name}_rows"', f'"{name}_dictionaries"'
        joined = f"FROM {keys} AS k CROSS JOIN {rows} AS r ON r.id = k.id WHERE"
        limit = f"LIMIT {port.PAGE_SIZE + 1}"
        in_range = f"{joined} k.partition = ? AND k.row BETWEEN ? AND ? ORDER BY k.row {limit}"
        in_partitions = f"{joined} k.row = ? AND k.partition BETWEEN ? AND ? ORDER BY k.partition {limit}"
        in_order = f"{joined} k.partition <= ? AND (k.partition, k.row) >= (?, ?) ORDER BY k.partition, k.row {limit}"
        one = "SELECT k.row, r.etag, r.time, r.small"
        both = f"SELECT k.partition || '{BETWEEN_KEYS}' || k.row, r.etag, r.time, r.small"
        large_of_first = (
            f"CASE WHEN k.row = ? AND length(r.large) <= {row_format.ALONG_BYTES} THEN r.large END"
        )

        self.rows_table = f"{name}_rows"
        self.dictionaries_table = f"{name}_dictionaries"
        self.dictionaries = (
            f"SELECT number, kind, shared, size FROM {dictionaries} WHERE kind <> '' ORDER BY number"
        )
        self.add_dictionary = f"INSERT INTO {dictionaries} (number, kind, shared, size) VALUES (?, ?, ?, ?)"
        self.kind_of_dictionary = f"SELECT kind FROM {dictionaries} WHERE number = ?"
        self.next_dictionary = f"SELECT ifnull(max(number), 0) + 1 FROM {dictionaries}"
        # An emptied dictionary keeps its number, which is never given again.
        self.empty_dictionary = (
            f"UPDATE {dictionaries} SET kind = '', shared = x'', size = 0 WHERE number = ?"
        )
        marked = f"substr(small, 1, {row_format.MARK_BYTES})"
        self.marks = f"SELECT DISTINCT {marked} FROM {rows} WHERE substr(small, 1, 1) = ?"
        self.make_dictionaries = f"CREATE TABLE IF NOT EXISTS {dictionaries} ({_DICTIONARY_COLUMNS})"
        self.make = (
            "CREATE TABLE IF NOT EXISTS eventstore_barrier (id INTEGER PRIMARY KEY, commits INTEGER NOT NULL)",
            f"CREATE TABLE IF NOT EXISTS {keys} ({_KEY_COLUMNS}, PRIMARY KEY (partition, row)) WITHOUT ROWID",
            f"CREATE TABLE IF NOT EXISTS {rows} ({_ROW_COLUMNS})",
            f"PRAGMA user_version={FORMAT}",
        )
        self.get = f"{one}, r.large {joined} k.partition = ? AND k.row = ?"
        self.find = f"SELECT r.id, r.etag, {marked} {joined} k.partition = ? AND k.row = ?"
        self.pages: dict[PageKind, str] = {
            "query": f"{one}, r.large {in_range}",
            "scan": f"{both}, r.large {in_partitions}",
            "scan_all": f"{both}, r.large {in_order}",
        }
        self.projections = {kind: page.replace("r.large", "r.id") for kind, page in self.pages.items()}
        self.project_first = f"{one}, {large_of_first} {in_range}"
        self.query_each = (
            f"SELECT k.partition, k.row, r.etag, r.time, r.small, "
            f"CASE WHEN length(r.large) > {row_format.ALONG_BYTES} THEN 0 ELSE r.large END FROM json_each(?) AS p "
            f"CROSS JOIN {keys} AS k ON k.partition = p.value AND k.row >= ? AND k.row <= ? "
            f"CROSS JOIN {rows} AS r ON r.id = k.id"
        )

        self.last_id = f"SELECT ifnull(max(id), 0) FROM {rows}"
        self.insert_row_at = f"INSERT INTO {rows} (id, etag, time, small, large) VALUES (?, ?, ?, ?, ?)"
        self.insert_row = f"INSERT INTO {rows} (etag, time, small, large) VALUES (?, ?, ?, ?)"
        self.delete_row = f"DELETE FROM {rows} WHERE id = ?"
        self.insert_key = f"INSERT INTO {keys} (partition, row, id) VALUES (?, ?, ?)"
        update = f"UPDATE {rows} SET etag = ?, time = ?, small = ?, large = ? WHERE id ="
        self.update_row = f"{update} ?"
        self.update_if_unchanged = (
            f"{update} (SELECT id FROM {keys} WHERE partition = ? AND row = ?) AND etag = ifnull(?, etag)"
        )
        self.delete_key = f"DELETE FROM {keys} WHERE partition = ? AND row = ?"


class Changes(row_format.Changes):
    """A validated transaction. All rows that the transaction writes get the same new ETag and time."""

    def __init__(self, table: SqliteTable, partition_key: str, operations: Sequence[Operation]) -> None:
        super().__init__(partition_key, operations)
        self._table = table

    @property
    def place(self) -> tuple[str, str]:
        """The escaped partition and row key of a transaction with one operation."""
        return self.partition, self.rows[0]

    def carry_out(self, connection: SqliteConnection) -> tuple[str, ...]:
        """Run all operations, and return the new ETags. Raises the `RowError` of the first refused one."""
        execute, sql, etags = connection.statement.execute, self._table.sql, []
        etag, written = connection.etags.getrandbits(63), time.time_ns() // 1000
        changes = zip(self.operations, self.rows, self.properties, strict=True)
        for index, (operation, row, properties) in enumerate(changes):
            place = self.partition, row
            stored = execute(sql.find, place).fetchone()
            if refused := refusal(operation, index, stored and str(stored[1])):
                raise refused
            if operation.verb is Verb.DELETE:
                execute(sql.delete_row, stored[:1])
                execute(sql.delete_key, place)
                etags.append("")
                continue
            if stored and operation.verb in (Verb.MERGE, Verb.INSERT_OR_MERGE):
                (found,) = self._table.plain(connection, execute(sql.get, place).fetchall())
                properties = merge(row_format.read_row(place, found).properties, properties)  # noqa: PLW2901
            small, large = row_format.pack(connection.packer, properties)
            dictionary = self._table.dictionaries(connection).newest.get(kind_of(*place))
            # The dictionary of a stored row is not empty.
            if dictionary is not None and not (
                stored and stored[2][: len(dictionary.mark)] == dictionary.mark
            ):
                dictionary = self._table.checked(connection, dictionary)
            values = etag, written, small if dictionary is None else dictionary.compress(small), large
            if stored:
                execute(sql.update_row, (*values, stored[0]))
            else:
                row_id = execute(sql.insert_row, values).lastrowid
                try:
                    execute(sql.insert_key, (*place, row_id))
                except sqlite3.IntegrityError:  # in a corrupt file a key may have no row
                    execute(sql.delete_row, (row_id,))
                    raise errors.RowExistsError(operation.row_key, index) from None
            etags.append(str(etag))
        return tuple(etags)


class SqliteTable(row_format.SqlTable):
    scope: port.Scope = "machine"

    def __init__(self, store: SqliteStore, name: str) -> None:
        self.name = name
        self.store_url = store.url
        self._store = store
        self.sql = Statements(name)

    def dictionaries(self, connection: SqliteConnection, *, again: bool = False) -> Dictionaries:
        """Return the table's dictionaries. Reads them on the first call, and again if `again` is set."""
        found = connection.dictionaries.get(self.name)
        if found is None or again:
            is_there = self._store.has_table(self.sql.dictionaries_table)
            rows = connection.execute(self.sql.dictionaries).fetchall() if is_there else ()
            found = connection.dictionaries[self.name] = Dictionaries(Dictionary(*row) for row in rows)
        return found

    def checked(self, connection: SqliteConnection, newest: Dictionary) -> Dictionary | None:
        """Return the dictionary unless a scrub has emptied it, else the newest of its kind. In a write transaction."""
        key = self.name, newest.number
        if key not in connection.checked:
            stored = connection.statement.execute(self.sql.kind_of_dictionary, key[1:]).fetchone()
            if stored != (newest.kind,):
                return self.dictionaries(connection, again=True).newest.get(newest.kind)
            connection.checked.add(key)
        return newest

    def plain(self, connection: SqliteConnection, found: Iterable[StoredRow]) -> Iterator[StoredRow]:
        """Yield rows with their small parts decompressed."""
        for row in found:
            key, etag, written, small, large = row
            if type(small) is bytes and small[:1] == row_format.MARK:
                dictionaries = self.dictionaries(connection)
                if row_format.number_of(small) not in dictionaries.by_number:  # another process has made it
                    dictionaries = self.dictionaries(connection, again=True)
                yield key, etag, written, dictionaries.plain(small), large
            else:
                yield row

    async def get(self, partition_key: str, row_key: str) -> Row | None:
        rows = self._read(self.sql.get, (escape(partition_key), escape(row_key))).rows
        return rows[0] if rows else None

    async def read(self, kind: PageKind, bounds: Bounds, select: Sequence[str] | None) -> Page:
        if select is None:
            return self._read(self.sql.pages[kind], bounds, inf if kind == "query" else row_format.PAGE_BYTES)
        if kind == "query" and (along := self._project_first(bounds, select)):
            return along
        return self._project(self.sql.projections[kind], bounds, select)

    async def query_each(
        self, partition_keys: Sequence[str], first: str, last: str
    ) -> list[tuple[Row, ...] | None]:
        stored = [escape(key) for key in partition_keys]
        values = (json.dumps([*dict.fromkeys(stored)]), escape_bound(first), escape_bound(last))
        with self._store.reading() as connection:
            rows = connection.statement.execute(self.sql.query_each, values).fetchall()
            plain = list(self.plain(connection, [row[1:] for row in rows]))
        found: dict[str, list[Row] | None] = {}
        for (partition, *_), row in zip(rows, plain, strict=True):
            page = found.setdefault(partition, [])
            try:
                if page is not None:
                    page.append(row_format.read_row((partition,), row))
            except DamagedRowError:
                found[partition] = None
        pages = map(found.get, stored, repeat([]))
        return [None if page is None or len(page) > port.PAGE_SIZE else tuple(page) for page in pages]

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        changes = Changes(self, partition_key, operations)
        with self._store.writing() as connection:
            return changes.carry_out(connection)

    async def transact_each(self, transactions: Sequence[port.Transaction]) -> list[port.TransactionResult]:
        """Run transactions within one SQLite transaction. Each refused transaction is rolled back to its savepoint."""
        checked: list[Changes | Exception] = []
        for partition_key, operations in transactions:
            try:
                checked.append(Changes(self, partition_key, operations))
            except Exception as error:  # noqa: BLE001 - any error of this transaction is its result
                checked.append(error)
        try:
            with self._store.writing() as connection:
                if (together := self._attempt_together(checked, connection)) is not None:
                    return together
                return [_attempt(each, connection) if isinstance(each, Changes) else each for each in checked]
        except BaseException:
            self._store.connection().dictionaries.pop(self.name, None)  # a new dictionary was rolled back
            raise

    def _attempt_together(
        self, checked: Sequence[Changes | Exception], connection: SqliteConnection
    ) -> list[port.TransactionResult] | None:
        """Run many transactions, each a single insert or replacement, in a few statements. Return their results.

        Changes no row and returns None if there are too few transactions, if two of them share a partition, if one has
        several operations or another kind of operation, or if an operation is refused.
        """
        changes = [each for each in checked if isinstance(each, Changes)]
        if len(changes) < FEWEST_TOGETHER or len({each.partition for each in changes}) < len(changes):
            return None
        verbs = [each.operations[0].verb for each in changes]
        if max(len(each.operations) for each in changes) > 1 or not {*verbs} <= {Verb.INSERT, Verb.REPLACE}:
            return None
        etag = connection.etags.getrandbits(63)
        written = etag, time.time_ns() // 1000
        parts = self._compressed(changes, connection)
        inserts, updates = [], []
        for each, verb, both in zip(changes, verbs, parts, strict=True):
            if verb is Verb.INSERT:
                inserts.append((each.place, (*written, *both)))
            else:
                updates.append((*written, *both, *each.place, etag_number(each.operations[0].etag)))
        many, execute = connection.statement.executemany, connection.statement.execute
        execute("SAVEPOINT together")
        try:
            if inserts:
                first = execute(self.sql.last_id).fetchone()[0] + 1
                many(self.sql.insert_key, [(*place, id_) for id_, (place, _) in enumerate(inserts, first)])
                many(self.sql.insert_row_at, [(id_, *row) for id_, (_, row) in enumerate(inserts, first)])
            is_done = not updates or many(self.sql.update_if_unchanged, updates).rowcount == len(updates)
        except sqlite3.IntegrityError:
            is_done = False
        if not is_done:
            execute("ROLLBACK TO together")
        execute("RELEASE together")
        if not is_done:
            return None
        return [each if isinstance(each, Exception) else (str(etag),) for each in checked]

    def _compressed(
        self, changes: Sequence[Changes], connection: SqliteConnection
    ) -> Sequence[tuple[bytes, bytes | None]]:
        """Return the compressed small part and the large part of each row. Trains missing and stale dictionaries."""
        parts = [row_format.pack(connection.packer, each.properties[0]) for each in changes]
        by_kind: defaultdict[str, list[int]] = defaultdict(list)
        for number, each in enumerate(changes):
            by_kind[kind_of(*each.place)].append(number)
        for kind, numbers in by_kind.items():
            rows = self._compressed_rows(kind, [parts[number][0] for number in numbers], connection)
            for number, small in zip(numbers, rows, strict=True):
                parts[number] = small, parts[number][1]
        return parts

    def _compressed_rows(
        self, kind: str, rows: Sequence[bytes], connection: SqliteConnection
    ) -> Sequence[bytes]:
        dictionary = self.dictionaries(connection).newest.get(kind)
        dictionary = dictionary and self.checked(connection, dictionary)
        compressed = rows if dictionary is None else [*map(dictionary.compress, rows)]
        if len(rows) < row_format.FEWEST_SAMPLES or (
            dictionary is not None and not dictionary.is_stale(compressed)
        ):
            return compressed
        dictionaries = self.dictionaries(connection, again=True)  # another process may have trained one
        newest = dictionaries.newest.get(kind)
        is_full = len(dictionaries.by_number) >= row_format.MOST_DICTIONARIES
        if is_full or (newest and newest.number) != (dictionary and dictionary.number):
            return rows if newest is None else [*map(newest.compress, rows)]
        connection.execute(self.sql.make_dictionaries)
        (number,) = connection.execute(self.sql.next_dictionary).fetchone()
        made = Dictionary.of(number, kind, rows)
        connection.execute(self.sql.add_dictionary, (made.number, made.kind, made.shared, made.size))
        dictionaries.add(made)
        return [*map(made.compress, rows)]

    async def barrier(self) -> None:
        # Commits are appended to one write-ahead log, so the fsync of this one covers all earlier ones. Commits that
        # are no longer in the log were synced with the database by a checkpoint.
        with self._store.reading(outcome_unknown=True) as connection:
            execute = connection.statement.execute
            execute("PRAGMA synchronous=FULL")
            try:
                execute(_BARRIER)
            finally:
                execute("PRAGMA synchronous=NORMAL")

    async def scrub(self) -> None:
        """Rewrite the database without free pages, empty unused dictionaries, and truncate the write-ahead log."""
        with self._store.writing() as connection:
            if known := self.dictionaries(connection, again=True).by_number:
                marks = connection.execute(self.sql.marks, (row_format.MARK,))
                unused = known.keys() - {row_format.number_of(mark) for (mark,) in marks}
                connection.executemany(self.sql.empty_dictionary, [(number,) for number in unused])
                del connection.dictionaries[self.name]
        with self._store.reading() as connection:
            connection.statement.execute("VACUUM")
            checkpoint = connection.statement.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (is_blocked, _, _) = checkpoint.fetchone()
        if is_blocked:
            raise StoreUnavailableError(
                f"The write-ahead log of {self._store.path} still holds deleted rows: another process reads the file."
            )

    def make(self) -> None:
        """Create the table unless it exists."""
        if not self._store.has_table(self.sql.rows_table):
            with self._store.writing() as connection:
                for statement in self.sql.make:
                    connection.execute(statement)

    def _read(self, sql: str, bounds: tuple[str, ...], most: float = inf) -> Page:
        with self._store.reading() as connection:
            try:
                # A separate cursor, since closing it ends the read early.
                with closing(connection.execute(sql, bounds)) as cursor:
                    return read_page(bounds, self.plain(connection, cursor), most=most)
            except DamagedRowError:
                if connection.in_transaction:
                    raise
            try:
                # One transaction, since the dictionary of a row may have been emptied after the row was read.
                connection.execute("BEGIN")
                return self._read(sql, bounds, most)
            finally:
                connection.roll_back()

    def _project_first(self, bounds: Bounds, select: Sequence[str]) -> Page | None:
        """Read a page in one statement. Return None if the statement cannot return all selected properties."""
        # It returns the large properties of the first row only (a stream's header or the first of some events), and
        # these only up to `ALONG_BYTES`.
        with self._store.reading() as connection:
            rows = connection.statement.execute(self.sql.project_first, (bounds[1], *bounds)).fetchall()
            rows = list(self.plain(connection, rows))
        with suppress(DamagedRowError):  # a full read distinguishes a corrupt row from one with a large part
            decode = partial(row_format.unpack_some, select, lambda along, length: (along or b"")[:length])
            page = read_page(bounds, rows, decode)
            if page.continuation is None or len(page.rows) == port.PAGE_SIZE:
                return page
        return None

    def _project(self, sql: str, bounds: tuple[str, ...], select: Sequence[str]) -> Page:
        with self._store.reading() as connection:
            execute = connection.statement.execute
            try:
                # One transaction, since large parts are read after the small parts.
                execute("BEGIN")
                rows = self.plain(connection, execute(sql, bounds).fetchall())
                read_large = partial(self._read_large, connection)
                return read_page(bounds, rows, partial(row_format.unpack_some, select, read_large))
            finally:
                connection.roll_back()

    def _read_large(self, connection: SqliteConnection, row_id: int, length: int) -> bytes:
        """Read the first bytes of a row's large part, without reading its other pages."""
        try:
            with connection.blobopen(self.sql.rows_table, "large", row_id, readonly=True) as blob:
                return blob.read(length)
        except sqlite3.OperationalError as error:
            if "cannot open value" in str(error):
                raise ValueError("its large properties are missing") from error
            raise


def _attempt(changes: Changes, connection: SqliteConnection) -> port.TransactionResult:
    """Run one of several transactions. If it is refused, undo its changes and return the error."""
    # A single refused operation has changed nothing, so only several need a savepoint.
    execute, several = connection.statement.execute, len(changes.operations) > 1
    if several:
        execute("SAVEPOINT one")
    try:
        result: port.TransactionResult = changes.carry_out(connection)
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001 - any error of this transaction is its result
        result = error
        if several:
            execute("ROLLBACK TO one")
    if several:
        execute("RELEASE one")
    return result
