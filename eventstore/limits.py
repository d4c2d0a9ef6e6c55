"""The limits of a table service, checked before anything is sent.

Every backend has the limits that are documented for Azure Table Storage: a property of 64 KiB (a string of 32 Ki UTF-16
units), a row of 252 properties and 1 MiB, a transaction of 100 operations on different rows and 4 MiB as sent.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from eventstore import errors
from eventstore.errors import PayloadTooLargeError
from eventstore.port import ANY_ETAG, Int64, Operation, Properties, Row, Value, Verb

MAX_OPERATIONS = 100
MAX_TRANSACTION_BYTES = 4 * 1024 * 1024
MAX_ROW_BYTES = 1024 * 1024
MAX_BINARY_BYTES = 64 * 1024
MAX_STRING_UNITS = 32 * 1024
MAX_PROPERTIES = 252
MAX_NAME_LENGTH = 255
SYSTEM_NAMES = frozenset({"PartitionKey", "RowKey", "Timestamp"})
FIRST_DATETIME = datetime(1601, 1, 1, tzinfo=UTC)

_ROW_BYTES = 4
_PROPERTY_BYTES = 8
_KEY_BYTES = 4  # a character has up to two UTF-16 units

SURELY_SMALL_BYTES = (MAX_TRANSACTION_BYTES - MAX_OPERATIONS * 1000) // 6
"""Transactions up to this size fit in any case: as sent they are at most six times larger, plus the framing."""

AROUND_ALL_BYTES = 150  # the multipart boundaries of a transaction
_AROUND_OPERATION_BYTES = 500
"""Boundary, headers, ETag, and the URL with the longest account and table, without keys."""

_AROUND_PROPERTY_BYTES = 36  # quotes, colons, commas, and the name of a type that JSON lacks
CONDITIONAL = frozenset({Verb.REPLACE, Verb.MERGE, Verb.DELETE})
_MAX_KNOWN_NAMES = 4096
_known_names: dict[str, int] = {}


def refusal(operation: Operation, index: int, stored: str | None) -> errors.RowError | None:
    """Return the error if an operation is refused, else None. `stored` is the row's ETag, None for a missing row."""
    if stored is None:
        return errors.RowNotFoundError(operation.row_key, index) if operation.verb in CONDITIONAL else None
    if operation.verb is Verb.INSERT:
        return errors.RowExistsError(operation.row_key, index)
    is_changed = operation.etag not in (None, ANY_ETAG, stored)
    return errors.RowChangedError(operation.row_key, index) if is_changed else None


def prepare(partition_key: str, operations: Sequence[Operation]) -> list[dict[str, Value]]:
    """Validate a transaction. Return a copy of each operation's properties, with times in UTC and without None values.

    Raises `PayloadTooLargeError` if a limit is exceeded, and `ValueError` or `TypeError` for an invalid operation.
    """
    if not operations:
        raise ValueError("A transaction needs at least one operation.")
    if len(operations) > MAX_OPERATIONS:
        raise PayloadTooLargeError(f"{len(operations)} operations exceed the limit of {MAX_OPERATIONS}.")
    rows: set[str] = set()
    prepared: list[dict[str, Value]] = []
    total = 0
    for operation in operations:
        row_key = operation.row_key
        if row_key in rows:
            raise ValueError(
                f"A transaction has several operations on the row {row_key!r}: combine them into one."
            )
        rows.add(row_key)
        if not (operation.etag if operation.verb in CONDITIONAL else operation.etag is None):
            wrong = "needs an" if operation.verb in CONDITIONAL else "takes no"
            raise ValueError(
                f"The {operation.verb.value} of the row {row_key!r} {wrong} ETag; '*' means no condition."
            )
        properties, size = prepare_row(operation.properties)
        size += _KEY_BYTES * (len(partition_key) + len(row_key))
        if size > MAX_ROW_BYTES:
            raise PayloadTooLargeError(
                f"The row {row_key!r} takes {size:,} bytes; the limit is {MAX_ROW_BYTES:,}."
            )
        total += size
        prepared.append(properties)
    # Most transactions are surely small. The exact size is expensive, since each text must be encoded.
    if total > SURELY_SMALL_BYTES:
        rows_ = zip(operations, prepared, strict=True)
        size = AROUND_ALL_BYTES + sum(sent_bytes(partition_key, *row) for row in rows_)
        if size > MAX_TRANSACTION_BYTES:
            raise PayloadTooLargeError(
                f"The transaction takes {size:,} bytes as sent; the limit is {MAX_TRANSACTION_BYTES:,}."
            )
    return prepared


def sent_bytes(partition_key: str, operation: Operation, properties: Mapping[str, Value]) -> int:
    """Return an upper bound for the bytes that an operation adds to the body of a transaction."""
    # Keys are sent twice, once percent-encoded.
    size = _AROUND_OPERATION_BYTES + 6 * len((partition_key + operation.row_key).encode())
    for name, value in properties.items():
        # The name is sent again with the type.
        size += _AROUND_PROPERTY_BYTES + 2 * len(name.encode())
        if isinstance(value, bytes):
            size += len(value) * 4 // 3 + 6  # base64
        elif isinstance(value, str):
            # Line separators are escaped: six bytes instead of three.
            separators = value.count("\u2028") + value.count("\u2029")
            size += len(json.dumps(value, ensure_ascii=False).encode()) + 3 * separators
        else:
            size += 40  # the longest is a quoted UUID
    return size


def prepare_row(properties: Properties) -> tuple[dict[str, Value], int]:
    """Validate the properties of a row. Return a copy to store, and the size of the row in bytes, without its keys.

    Raises `PayloadTooLargeError` if a limit is exceeded, and `ValueError` or `TypeError` for an invalid property.
    """
    prepared: dict[str, Value] = {}
    size = _ROW_BYTES
    value: Any
    for name, value in properties.items():
        check = _CHECKS.get(type(value)) or _check_of_subclass(name, value)
        if check is None:
            continue
        value, value_size = check(name, value)  # noqa: PLW2901 - the checked value takes its place
        prepared[name] = value
        size += value_size + (_known_names.get(name) or _check_name(name))
    if len(prepared) > MAX_PROPERTIES:
        raise PayloadTooLargeError(f"A row has {len(prepared)} properties; the limit is {MAX_PROPERTIES}.")
    return prepared, size


def row_bytes(row: Row) -> int:
    """Return the size of a row in bytes, as Azure Table Storage counts keys, names and values."""
    return prepare_row(row.properties)[1] + 2 * (len(row.partition_key) + len(row.row_key))


def check_types(properties: Mapping[str, object]) -> None:
    """Raise `TypeError` for a value of a type that no table stores. Sizes are checked by `prepare`."""
    for name, value in properties.items():
        if type(value) not in _CHECKS:
            _check_of_subclass(name, value)


def merge(before: Properties, after: Properties) -> dict[str, Value]:
    """Return `before` with `after` merged into it. Raises `PayloadTooLargeError` if the row becomes too large."""
    merged, size = prepare_row({**before, **after})
    if size > MAX_ROW_BYTES:
        raise PayloadTooLargeError(f"A row takes {size:,} bytes once merged; the limit is {MAX_ROW_BYTES:,}.")
    return merged


def _check_name(name: str) -> int:
    """Validate and cache a property name. Return the bytes that it adds to a row. Raises `ValueError` if invalid."""
    if not name.isidentifier():
        raise ValueError(f"The property name {name!r} is not an identifier.")
    if len(name) > MAX_NAME_LENGTH:
        raise ValueError(f"The property name {name[:40]!r}... has more than {MAX_NAME_LENGTH} characters.")
    if name in SYSTEM_NAMES:
        raise ValueError(f"The property name {name!r} is reserved by the table service.")
    if len(_known_names) >= _MAX_KNOWN_NAMES:
        _known_names.clear()
    size = _known_names[name] = _PROPERTY_BYTES + 2 * len(name)
    return size


def _check_str(name: str, value: str) -> tuple[str, int]:
    if value.isascii():
        units = len(value)
    else:
        try:
            units = len(value.encode("utf-16-le")) // 2
        except UnicodeEncodeError:
            raise ValueError(f"The property {name!r} is not valid text: it has a lone surrogate.") from None
    if units > MAX_STRING_UNITS:
        raise PayloadTooLargeError(
            f"The property {name!r} has {units:,} UTF-16 units; the limit is {MAX_STRING_UNITS:,}."
        )
    return value, 2 * units + 4


def _check_bytes(name: str, value: bytes) -> tuple[bytes, int]:
    size = len(value)
    if size > MAX_BINARY_BYTES:
        raise PayloadTooLargeError(
            f"The property {name!r} has {size:,} bytes; the limit is {MAX_BINARY_BYTES:,}."
        )
    return value, size + 4


def _check_int(name: str, value: int) -> tuple[int, int]:
    if not -(2**31) <= value < 2**31:
        raise ValueError(f"The property {name!r} is {value}: an int has 32 bits, an Int64 has 64.")
    return value, 4


def _check_int64(name: str, value: Int64) -> tuple[Int64, int]:
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"The property {name!r} is {int(value)}: an Int64 has 64 bits.")
    return value, 8


def _check_datetime(name: str, value: datetime) -> tuple[datetime, int]:
    if value.tzinfo is None:
        raise ValueError(f"The property {name!r} is a datetime without a time zone.")
    try:
        value = value.astimezone(UTC)
        is_outside = value < FIRST_DATETIME
    except OverflowError:
        is_outside = True
    if is_outside:
        raise ValueError(f"The property {name!r} is a datetime outside the years 1601 to 9999.")
    return value.replace(fold=0) if value.fold else value, 8


_Check = Callable[[str, Any], tuple[Any, int]]
_CHECKS: dict[type, _Check] = {
    str: _check_str,
    bytes: _check_bytes,
    int: _check_int,
    Int64: _check_int64,
    bool: lambda _, value: (value, 1),
    # Services drop the sign of zero; so does the sum.
    float: lambda _, value: (value + 0.0, 8),
    datetime: _check_datetime,
    UUID: lambda _, value: (value, 16),
}
_PLAIN: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    bytes: bytes,
    Int64: Int64,
    int: int,
    float: float,
    datetime: lambda value: datetime.combine(value.date(), value.timetz()),
    UUID: lambda value: UUID(int=value.int),
}


def _check_of_subclass(name: str, value: object) -> _Check | None:
    """Return a check that first converts a value to the stored type that the class of `value` extends. None: no check.

    Raises `ValueError` if converting `value` would lose information, and `TypeError` if no table stores such a value.
    """
    if value is None:
        return None
    for plain_type, plain in _PLAIN.items():
        if isinstance(value, plain_type):
            check = _CHECKS[plain_type]
            # NaN is not equal to itself.
            if plain(value) != value and value == value:  # noqa: PLR0124
                kinds = f"{type(value).__name__}, and would lose information as a {plain_type.__name__}"
                raise ValueError(f"The property {name!r} is a {kinds}.")
            return lambda checked_name, checked: check(checked_name, plain(checked))
    raise TypeError(f"The property {name!r} is a {type(value).__name__}, which no table can store.")
