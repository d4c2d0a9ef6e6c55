"""The connections to one SQLite file: how it is opened, and what its errors mean.

Each thread of each process has its own connection. After a fork the inherited ones are left alone, never
used and never closed, not even at exit: the parent still owns their locks and their place in the log.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from weakref import WeakSet

from eventstore.backends.packing import Packer
from eventstore.errors import EventStoreError, StoreUnavailableError, StoreUrlError

BUSY_SECONDS = 60
FORMAT = 1

_SETTINGS = (
    "PRAGMA synchronous=NORMAL",
    "PRAGMA fullfsync=ON",
    "PRAGMA cache_size=-8000",
    "PRAGMA wal_autocheckpoint=4000",
)
_UNUSABLE = frozenset(
    {
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
    }
)
_WAL_SECONDS = 30
_WAL_PAUSE_SECONDS = 0.1
_TRY_AGAIN = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL})


class SqliteConnection(sqlite3.Connection):
    """A connection with what belongs to its thread: a cursor, a packer and a source of ETags."""

    def prepare(self) -> None:
        """Make what belongs to the connection."""
        self.pid = os.getpid()
        self.identity: tuple[int, int] | None = None
        self.statement = self.cursor()
        self.packer = Packer()
        self._random = Random(os.urandom(32))  # noqa: S311 - must not repeat, need not be secret

    def new_etag(self) -> int:
        """Return a number that no row had as its ETag before."""
        return self._random.getrandbits(63)

    def roll_back(self) -> None:
        """End a transaction that is still open, and undo what it did."""
        if self.in_transaction:
            with suppress(sqlite3.Error):
                self.statement.execute("ROLLBACK")

    def read_large(self, table: str, row_id: int, length: int) -> bytes:
        """Read the first bytes of a row's large part, and only the pages that they are on."""
        with self.blobopen(table, "large", row_id, readonly=True) as blob:
            return blob.read(length)


class SqliteFile:
    """A database file and the connections of this process to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = threading.local()
        self._open: WeakSet[SqliteConnection] = WeakSet()

    def connection(self) -> SqliteConnection:
        """Return the connection of this thread; open it at the first call in this process."""
        connection: SqliteConnection | None = getattr(self._local, "connection", None)
        if connection is not None and connection.pid == os.getpid():
            return connection
        try:
            connection = self._connect()
        except sqlite3.Error as error:
            raise self.explained(error) from error
        except OSError as error:
            raise StoreUrlError(f"The folder of {self.path} cannot be made: {error.strerror}.") from error
        connection.identity = _identity(self.path)
        self._local.connection = connection
        self._open.add(connection)
        _connections.add(connection)
        return connection

    def is_replaced(self) -> bool:
        """Return whether the file that this thread has open is no longer the one at its path: deleted, or replaced."""
        connection: SqliteConnection | None = getattr(self._local, "connection", None)
        if connection is None or connection.pid != os.getpid():
            return False
        return _identity(self.path) != connection.identity

    def close(self) -> None:
        """Close the connections that this process opened."""
        for connection in list(self._open):
            if connection.pid == os.getpid():
                connection.close()
        self._open = WeakSet()
        self._local = threading.local()

    def explained(self, error: sqlite3.Error, *, outcome_unknown: bool = False) -> EventStoreError:
        """Return the error to raise in place of one from SQLite."""
        extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        code = extended & 0xFF
        if code in _UNUSABLE:
            return StoreUrlError(f"The file {self.path} cannot be used as a store: {error}.")
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreUnavailableError(f"The file {self.path} was locked for {BUSY_SECONDS} seconds.")
        if code == sqlite3.SQLITE_FULL:
            return StoreUnavailableError(f"The disk of {self.path} is full.")
        if extended == sqlite3.SQLITE_IOERR_WRITE:
            # SQLite says no more when a quota or a limit of the process is reached; neither makes a disk full.
            return StoreUnavailableError(
                f"The file {self.path} could not be written ({error}): a quota or a limit on the size of files "
                "may be reached.",
                outcome_unknown,
            )
        return StoreUnavailableError(f"The file {self.path} failed: {error}.", outcome_unknown)

    @contextmanager
    def writing(self) -> Iterator[SqliteConnection]:
        """Begin an immediate transaction, and commit it at the end; after any error all of it is undone.

        Translates `sqlite3` errors to `EventStoreError`s.
        """
        connection = self.connection()
        execute = connection.statement.execute
        try:
            execute("BEGIN IMMEDIATE")
            yield connection
            execute("COMMIT")
        except BaseException as error:
            connection.roll_back()
            if isinstance(error, sqlite3.Error):
                raise self.explained(error, outcome_unknown=True) from error
            raise

    def make_tables(self, last: str, statements: Iterable[str]) -> None:
        """Carry out the statements that make some tables, unless the last of them is there."""
        if self.has_table(last):
            return
        with self.writing() as connection:
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={FORMAT}")

    def has_table(self, name: str) -> bool:
        """Return whether an SQL table is there."""
        try:
            found = self.connection().execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,))
            return found.fetchone() is not None
        except sqlite3.Error as error:
            raise self.explained(error) from error

    def _connect(self) -> SqliteConnection:
        _make_folder(self.path.parent)
        _make_file(self.path)
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
        connection.prepare()
        return connection

    def _switch_to_wal(self, connection: sqlite3.Connection) -> None:
        # SQLite does not wait while another process switches the same new file, it fails at once. Where processes that
        # were killed have left a log which others recover, it may give up after some seconds: "locking protocol".
        deadline = time.monotonic() + _WAL_SECONDS
        while True:
            try:
                (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in _TRY_AGAIN or time.monotonic() > deadline:
                    raise
                time.sleep(_WAL_PAUSE_SECONDS)
        if mode != "wal":
            raise StoreUrlError(
                f"The file {self.path} cannot be used as a store: its file system does not grant "
                f"SQLite's write-ahead log (the journal mode stays {mode!r})."
            )

    def _check_format(self, connection: sqlite3.Connection) -> None:
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found not in (0, FORMAT):
            raise StoreUrlError(
                f"The file {self.path} has the format {found}; this version reads the format {FORMAT}."
            )


def _make_folder(folder: Path) -> None:
    """Make a folder that outlives a power cut: what names it is written to the disk too."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        descriptor = os.open(made.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _hold_connections() -> None:
    _held.extend(_connections)


def _let_go_of_connections() -> None:
    _held.clear()


def _leave_connections_alone() -> None:
    """In a child: count each inherited connection as used once more than it is, so that none is closed."""
    import ctypes  # noqa: PLC0415 - hardly anyone forks

    for connection in _held:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    _held.clear()
    _connections.clear()


_connections: WeakSet[SqliteConnection] = WeakSet()
_held: list[SqliteConnection] = []
os.register_at_fork(
    before=_hold_connections,
    after_in_parent=_let_go_of_connections,
    after_in_child=_leave_connections_alone,
)


def _make_file(path: Path) -> None:
    """Make an empty file that nobody but its owner may read; SQLite gives its log and index the same rights."""
    with suppress(OSError):  # which SQLite tells, and it is there already but once
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from every other that exists, None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
