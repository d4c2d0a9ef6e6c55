"""Reading typed properties of rows: a value of another type than was written raises `TypeError`."""

from __future__ import annotations

from datetime import datetime

from eventstore import Properties, Value
from runtime.clock import to_microseconds
from runtime.storage.damage import shown

INT32 = 2**31 - 1
INT64 = 2**63 - 1
"""The largest integers that a property has, the first one where it is no `Int64`."""


def number(properties: Properties, name: str, default: int | None = None, *, most: int = INT64) -> int:
    """Return an integer property from 0 on; without a default it must be there. Raises `ValueError` beyond `most`."""
    value = properties[name] if default is None else properties.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(name, value)
    if not 0 <= value <= most:
        message = f"the property {name} holds {value}"
        raise ValueError(message)
    return int(value)


def text(properties: Properties, name: str) -> str:
    """Return a text property."""
    value = properties[name]
    if not isinstance(value, str):
        raise _wrong(name, value)
    return value


def time(properties: Properties, name: str) -> datetime:
    """Return a time property."""
    value = properties[name]
    if not isinstance(value, datetime):
        raise _wrong(name, value)
    return value


def microseconds(properties: Properties, name: str) -> int | None:
    """Return a time property in microseconds since 1970 UTC, None when it is not there."""
    return to_microseconds(time(properties, name)) if name in properties else None


def _wrong(name: str, value: Value) -> TypeError:
    return TypeError(f"the property {name} holds {shown(value)}")
