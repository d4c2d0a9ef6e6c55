"""Reading typed properties of rows: a value of another type than was written raises `TypeError`."""

from __future__ import annotations

from datetime import datetime

from eventstore import Properties, Value
from runtime.clock import to_microseconds


def number(properties: Properties, name: str, default: int | None = None) -> int:
    """Return an integer property; without a default it must be there."""
    value = properties[name] if default is None else properties.get(name, default)
    if not isinstance(value, int):
        raise _wrong(name, value)
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
    return TypeError(f"the property {name} holds {value!r}")
