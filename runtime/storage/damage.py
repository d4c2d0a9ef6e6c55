"""Damage: whatever reading stored bytes raises becomes one `StoredDataError`, which says where they are.

Bytes are checked by those who read them: by `reading`, which knows the row. Whoever opened the stream adds the rest of
the place, by `placed`. Whoever looks at many streams reads each as `one_of_many`: a job that is `collecting` damage
does all the others.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgpack
import zstandard

from eventstore import DamagedRowError, Row, Table
from eventstore.port import place_of
from runtime.errors import StoredDataError

UNREADABLE = (
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    struct.error,
    zstandard.ZstdError,
    msgpack.UnpackException,
)
"""What reading damaged bytes may raise."""

_SHOWN = 200


class reading:  # noqa: N801 - used as the functions beside it; a class, as each stream that is read enters some
    """Raise `StoredDataError` in place of what reading a row raises; `what` begins the sentence."""

    __slots__ = ("_row", "_stream", "_what")

    def __init__(self, what: str, row: str = "", stream: str = "") -> None:
        self._what = what
        self._row = row
        self._stream = stream

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StoredDataError):
            raise error.at(row=self._row, stream=self._stream) from error.__cause__
        if isinstance(error, UNREADABLE):
            problem = f"{self._what} cannot be read: {shown(error)}."
            raise StoredDataError(problem, self._row, self._stream) from error


def reading_row(what: str, row: Row) -> reading:
    """Do the same for a row of a table."""
    return reading(what, row.row_key, row.partition_key)


class placed:  # noqa: N801 - used as the functions beside it; a class, as each stream that is read enters some
    """Add table, store and stream to every `StoredDataError`, which damage that the event store finds becomes too."""

    __slots__ = ("_stream", "_table")

    def __init__(self, table: Table, stream: str = "") -> None:
        self._table = table
        self._stream = stream

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StoredDataError):
            raise _with_table(error.at(stream=self._stream), self._table) from error.__cause__
        if isinstance(error, DamagedRowError):
            found = StoredDataError(f"{error}", error.row_key, error.partition_key)
            raise _with_table(found, self._table) from error


class Damaged:
    """The streams that could not be read, while the others were: how many, and the errors of the first of them."""

    MOST = 100

    def __init__(self) -> None:
        self.errors: list[StoredDataError] = []
        self._streams: set[str] = set()
        self.count = 0

    def add(self, error: StoredDataError) -> None:
        """Take note of an error; a stream counts once, as long as it is among the first."""
        name = error.stream or str(error)
        if name in self._streams:
            return
        self.count += 1
        if self.count <= self.MOST:
            self._streams.add(name)
            self.errors.append(error)


_collected: ContextVar[Damaged | None] = ContextVar("collected", default=None)


@contextmanager
def collecting(damaged: Damaged) -> Iterator[None]:
    """Let what reads many streams go on when one of them is damaged, and take note of it."""
    token = _collected.set(damaged)
    try:
        yield
    finally:
        _collected.reset(token)


def report(error: StoredDataError) -> None:
    """Take note of damage where it is collected, else raise the error."""
    damaged = _collected.get()
    if damaged is None:
        raise error
    damaged.add(error)


class one_of_many:  # noqa: N801 - used as the functions beside it; a class, as it may swallow an error
    """Read one of many streams: raise as `placed` does or, where damage is collected, leave the stream out."""

    __slots__ = ("_place",)

    def __init__(self, table: Table, stream: str) -> None:
        self._place = table, stream

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, StoredDataError | DamagedRowError):
            return False
        try:
            with placed(*self._place):
                raise error
        except StoredDataError as found:
            report(found)
        return True


def expect(value: Any, *kinds: type | None) -> Any:  # noqa: ANN401 - what was stored
    """Return a value that is of one of these types. Raises `TypeError`."""
    if type(value) in kinds or (value is None and None in kinds):
        return value
    message = f"{shown(value)} stands in place of another type"
    raise TypeError(message)


def expect_all(values: Any, *kinds: type | None) -> Any:  # noqa: ANN401 - as above
    """Return a list whose items are all of these types. Raises `TypeError`."""
    found = set(map(type, expect(values, list)))
    if not found <= {type(None) if kind is None else kind for kind in kinds}:
        message = f"a column holds values of {', '.join(sorted(kind.__name__ for kind in found))}"
        raise TypeError(message)
    return values


def _with_table(error: StoredDataError, table: Table) -> StoredDataError:
    name, store = place_of(table)
    return error.at(table=name, store=store)


def shown(value: object) -> str:
    """Return an error, or a stored value, as a sentence names it, however large it is."""
    try:
        text = repr(value)
    except RecursionError:
        text = type(value).__name__
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
