"""The connections to one SQLite file: how it is opened, and what its errors mean.

Each thread of each process has its own connection. After a fork the inherited ones are left alone, never
used and never closed, not even at exit: the parent still owns their locks and their place in the log.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from uuid import UUID
from weakref import WeakSet

import msgpack

from eventstore.errors import EventStoreError, StoreUnavailableError, StoreUrlError
from eventstore.limits import MAX_BINARY_BYTES, MAX_PROPERTIES, MAX_STRING_UNITS
from eventstore.port import Int64, Value

# Typed properties as bytes: msgpack, with extension types for what it lacks.
#
# A row becomes two byte strings. `small` holds all properties but the large binary ones. `large` holds
# those, one after the other, the shortest first, and `small` then says where each one is: a reader that
# wants none of them, or only the first ones, need not read the rest.

LARGE_BYTES = 512
"""A binary property over this size is a large one."""

_INT64, _DATETIME, _UUID = 1, 2, 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NO_PLACES: dict[str, int] = {}


class Packer:
    """Packs properties. Belongs to one thread."""

    __slots__ = ("_pack",)

    def __init__(self) -> None:
        self._pack = msgpack.Packer(default=_to_extension, strict_types=True).pack

    def pack(self, properties: Mapping[str, Value]) -> tuple[bytes, bytes | None]:
        """Return the small and the large part of a row."""
        large = [
            (len(value), name, value)
            for name, value in properties.items()
            if type(value) is bytes and len(value) > LARGE_BYTES
        ]
        if not large:
            return self._pack(properties), None
        large.sort()
        places = {name: length for length, name, _ in large}
        small = {name: value for name, value in properties.items() if name not in places}
        return self._pack([small, places]), b"".join([value for _, _, value in large])


def unpack_small(small: bytes) -> tuple[dict[str, Value], dict[str, int]]:
    """Return the small properties, and the lengths of the large ones in the order of their bytes."""
    unpacked = msgpack.unpackb(
        small,
        ext_hook=_from_extension,
        max_str_len=4 * MAX_STRING_UNITS,
        max_bin_len=MAX_BINARY_BYTES,
        max_array_len=2,
        max_map_len=MAX_PROPERTIES,
        max_ext_len=16,
    )
    if type(unpacked) is dict:
        return unpacked, _NO_PLACES
    properties, places = unpacked
    return properties, places


def unpack(small: bytes, large: bytes | None) -> dict[str, Value]:
    """Return all properties of a row."""
    properties, places = unpack_small(small)
    if places:
        _add_large(properties, places, large or b"")
    return properties


def large_bytes(places: Mapping[str, int], select: Sequence[str]) -> int:
    """Return how many bytes of the large part hold the properties named."""
    end = needed = 0
    for name, length in places.items():
        end += length
        if name in select:
            needed = end
    return needed


def select_from(
    properties: Mapping[str, Value], places: Mapping[str, int], large: bytes, select: Sequence[str]
) -> dict[str, Value]:
    """Return the properties named, given as much of the large part as `large_bytes` asks for."""
    selected = {name: properties[name] for name in select if name in properties}
    if large:
        _add_large(selected, places, large, select)
    return selected


def _add_large(
    properties: dict[str, Value], places: Mapping[str, int], large: bytes, select: Sequence[str] | None = None
) -> None:
    start = 0
    for name, length in places.items():
        if select is None or name in select:
            value = large[start : start + length]
            if len(value) < length:
                raise ValueError(f"The large property {name!r} is cut short.")
            properties[name] = value
        start += length


def _to_extension(value: object) -> msgpack.ExtType:
    if isinstance(value, Int64):
        return msgpack.ExtType(_INT64, value.to_bytes(8, "big", signed=True))
    if isinstance(value, datetime):
        return msgpack.ExtType(_DATETIME, ((value - _EPOCH) // _MICROSECOND).to_bytes(8, "big", signed=True))
    if isinstance(value, UUID):
        return msgpack.ExtType(_UUID, value.bytes)
    raise TypeError(f"A {type(value).__name__} cannot be stored.")


def _from_extension(code: int, data: bytes) -> Value:
    if code == _INT64:
        return Int64(int.from_bytes(data, "big", signed=True))
    if code == _DATETIME:
        return _EPOCH + timedelta(microseconds=int.from_bytes(data, "big", signed=True))
    if code == _UUID:
        return UUID(bytes=data)
    raise ValueError(f"The extension type {code} is unknown.")


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
    """Make an empty file that only its owner may read; SQLite gives its log and index the same rights."""
    with suppress(OSError):  # which SQLite tells, and it is there already but once
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from every other that exists, None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
