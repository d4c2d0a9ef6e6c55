"""Freezing: turn any value into a key that is equal for equal values, whatever objects they are made of."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from tests.model.processes import IncomparableTime

T = TypeVar("T")


def frozen(value: Any) -> Hashable:
    """Return a hashable key of a value. 1, True and 1.0 have different ones."""
    if value is None or isinstance(value, str | bytes | Enum):
        return value
    if isinstance(value, IncomparableTime):
        value = int(value)
    kind = type(value).__name__
    if isinstance(value, Mapping):
        return kind, tuple(sorted((name, frozen(each)) for name, each in value.items()))
    if isinstance(value, list | tuple):
        return kind, tuple([frozen(each) for each in value])
    if isinstance(value, AbstractSet):
        return kind, frozenset(frozen(each) for each in value)
    if isinstance(value, BaseException):
        return kind, frozen(value.args)
    if is_dataclass(value):
        return kind, tuple([frozen(getattr(value, field.name)) for field in fields(value)])
    if isinstance(value, Hashable):
        return kind, value
    message = f"There is no key for a {kind}: {value!r}"
    raise TypeError(message)


class Numbered(Generic[T]):
    """Gives equal values the same number, counted from 0, and keeps the first of them."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, number: int) -> T:
        return self.values[number]

    def key(self, value: T) -> Hashable:
        """Return a key that is equal for equal values."""
        return frozen(value)

    def number(self, value: T) -> int:
        """Return the number of a value."""
        key = self.key(value)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.values)
            self.values.append(value)
        return number
