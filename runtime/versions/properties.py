"""Read and write typed properties of rows, and report corrupt rows."""

import struct
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgpack
import zstandard

from eventstore import DamagedRowError, Operation, Properties, Row, Table, Value, pages
from eventstore.port import Substitute, place_of
from runtime.clock import to_microseconds
from runtime.errors import StoredDataError

T = TypeVar("T")

CHUNK = 64 * 2**10


def chunk_names(name: str, count: int) -> list[str]:
    """Return the names of the properties that hold up to `count` chunks of 64 KiB."""
    return [name, *(f"{name}{number}" for number in range(1, count))]


def split(properties: dict[str, Value], names: Sequence[str], data: bytes) -> None:
    """Add `data` to `properties` in chunks of 64 KiB, under `names`. Raises `ValueError` if there are too few names."""
    if len(data) > len(names) * CHUNK:
        raise ValueError(f"{len(data)} bytes exceed the limit of a row")
    for name, at in zip(names, range(0, len(data), CHUNK), strict=False):
        properties[name] = data[at : at + CHUNK]


def join(properties: Properties, names: Sequence[str]) -> bytes:
    """Return the bytes from `split`. Raises `KeyError` or `ValueError` for missing chunks, `TypeError` if not bytes."""
    first = expect(properties[names[0]], bytes)
    if len(first) < CHUNK and (len(names) == 1 or names[1] not in properties):
        return bytes(first)
    there = [name for name in names if name in properties]
    parts = [expect(properties[name], bytes) for name in there]
    if there != list(names[: len(there)]) or any(len(part) != CHUNK for part in parts[:-1]):
        raise ValueError(f"chunks of {names[0]} are missing")
    return b"".join(parts)


def written(row_key: str, properties: Properties, etag: str | None) -> Operation:
    """Return an operation that inserts a row or, if `etag` is given, replaces the row if it still has this ETag."""
    return Operation.replace(row_key, properties, etag) if etag else Operation.insert(row_key, properties)


async def rows_between(
    table: Table, key: str, first: str, last: str, select: Sequence[str] | None = None
) -> AsyncIterator[Row]:
    """Yield the rows of partition `key` from row key `first` to `last`, inclusive. Costs one request per 1,000 rows."""
    async for page in pages(partial(table.query, key, first, last, select=select)):
        for row in page.rows:
            yield row


# An exception from decoding stored bytes becomes a `StoredDataError` that names the row.

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
"""The exceptions that decoding corrupt bytes may raise."""

_SHOWN = 200


class Damaged:
    """Counts corrupt streams during a scan, and keeps the errors of the first 100."""

    MOST = 100

    def __init__(self) -> None:
        self.errors: list[StoredDataError] = []
        self._streams: set[str] = set()
        self.count = 0

    def add(self, error: StoredDataError) -> None:
        """Record the error of a corrupt stream. Keeps an error for each of the first 100, and counts later ones."""
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
    """Context manager that makes `one_of_many` skip corrupt streams, and records their errors in `damaged`."""
    token = _collected.set(damaged)
    try:
        yield
    finally:
        _collected.reset(token)


def report(error: StoredDataError) -> None:
    """Within `collecting`, record the error of a corrupt stream. Otherwise, raise the error."""
    damaged = _collected.get()
    if damaged is None:
        raise error
    damaged.add(error)


class reading:  # noqa: N801 - used like a function; a class is faster than @contextmanager
    """Context manager that converts exceptions from decoding to `StoredDataError`, whose message begins with `what`.

    Adds the location (row, stream, table and store) to every `StoredDataError`. If `what` is empty, converts only
    `DamagedRowError`, which a store raises for a corrupt row.
    """

    __slots__ = ("_row", "_stream", "_table", "_what")

    def __init__(self, what: str, row: str = "", stream: str = "", table: Table | None = None) -> None:
        self._what = what
        self._row = row
        self._stream = stream
        self._table = table

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool | None:
        if error is not None and (converted := self._converted(error)) is not None:
            raise converted from (error.__cause__ if isinstance(error, StoredDataError) else error)
        return None

    def _converted(self, error: BaseException) -> StoredDataError | None:
        if isinstance(error, StoredDataError):
            converted = error.with_location(row=self._row, stream=self._stream)
        elif isinstance(error, DamagedRowError):
            converted = StoredDataError(f"The row {error.problem}.", error.row_key, error.partition_key)
        elif self._what and isinstance(error, UNREADABLE):
            problem = f"{self._what} cannot be read: {shown(error)}."
            converted = StoredDataError(problem, self._row, self._stream)
        else:
            return None
        if self._table is None:
            return converted
        name, store = place_of(self._table)
        return converted.with_location(table=name, store=store)


def reading_row(what: str, row: Row) -> reading:
    return reading(what, row.row_key, row.partition_key)


def error_location(table: Table, stream: str = "") -> reading:
    """Return a context manager that adds table, store and stream to every `StoredDataError`."""
    return reading("", "", stream, table)


class one_of_many(reading):  # noqa: N801 - as above
    """Context manager that works like `error_location`, but within `collecting` records the error and suppresses it."""

    __slots__ = ()

    def __init__(self, table: Table, stream: str) -> None:
        super().__init__("", "", stream, table)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        damaged = _collected.get()
        if error is None or damaged is None:
            super().__exit__(kind, error, trace)
            return False
        converted = self._converted(error)
        if converted is not None:
            damaged.add(converted)
        return converted is not None


def damaged_row(table: Table) -> Substitute:
    """Return a callback that raises a corrupt row's error or, in `collecting`, records it and returns an empty row."""

    def substitute(error: DamagedRowError) -> Row:
        with one_of_many(table, error.partition_key):
            raise error
        return Row(error.partition_key, error.row_key, "", {})

    return substitute


def expect(value: Any, *kinds: type | None) -> Any:  # noqa: ANN401 - what was stored
    """Return `value` if its type is one of `kinds`, where None permits the value None. Otherwise raise `TypeError`."""
    if type(value) in kinds or (value is None and None in kinds):
        return value
    raise TypeError(f"{shown(value)} has the wrong type")


def expect_all(values: Any, *kinds: type | None) -> Any:  # noqa: ANN401 - as above
    """Return `values` if it is a list and each of its values has one of the types `kinds`. Otherwise raise `TypeError`.

    None among the `kinds` permits the value None.
    """
    types = set(map(type, expect(values, list)))
    if not types <= {type(None) if kind is None else kind for kind in kinds}:
        raise TypeError(f"a column holds values of {', '.join(sorted(kind.__name__ for kind in types))}")
    return values


def shown(value: object) -> str:
    """Format an error or a stored value for an error message, shortened to 200 characters."""
    try:
        text = repr(value)
    except RecursionError:  # deeply nested
        text = type(value).__name__
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


INT32 = 2**31 - 1  # the largest plain integer property
INT64 = 2**63 - 1  # the largest `Int64` property


def number(properties: Properties, name: str, default: int | None = None, *, most: int = INT64) -> int:
    """Return an integer from 0 to `most`, or `default` if the property is missing.

    Raises `KeyError` if it is missing without a default, `TypeError` for another type, `ValueError` if out of range.
    """
    value = properties[name] if default is None else properties.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"the property {name} holds {shown(value)}")
    if not 0 <= value <= most:
        raise ValueError(f"the property {name} holds {value}")
    return int(value)


def text(properties: Properties, name: str) -> str:
    return _typed(properties, name, str)


def time(properties: Properties, name: str) -> datetime:
    return _typed(properties, name, datetime)


def microseconds(properties: Properties, name: str) -> int | None:
    """Return a time property in microseconds since 1970 UTC, or `None` if it is missing."""
    return to_microseconds(time(properties, name)) if name in properties else None


def _typed(properties: Properties, name: str, kind: type[T]) -> T:
    value = properties[name]
    if not isinstance(value, kind):
        raise TypeError(f"the property {name} holds {shown(value)}")
    return value
