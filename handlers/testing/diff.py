"""Differences between expected and actual values, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from pydantic import BaseModel

from handlers.message import Message

_NOTHING: Any = object()


def differences(expected: Any, actual: Any, where: str) -> Iterator[str]:  # noqa: ANN401 - any field value
    """Yield a line for each difference between two values of a field, models and tuples member by member."""
    if isinstance(expected, BaseModel) and type(expected) is type(actual):
        for name in type(expected).model_fields:
            yield from differences(getattr(expected, name), getattr(actual, name), f"{where}.{name}")
    elif isinstance(expected, tuple) and isinstance(actual, tuple):
        for at, (one, other) in enumerate(zip_longest(expected, actual, fillvalue=_NOTHING)):
            yield from differences(one, other, f"{where}[{at}]")
    elif isinstance(expected, frozenset) and isinstance(actual, frozenset):
        yield from (f"{where}: expected {shown(each)} in it" for each in _sorted(expected - actual))
        yield from (f"{where}: got {shown(each)} in it, not expected" for each in _sorted(actual - expected))
    elif not _are_same(expected, actual):
        yield f"{where}: expected {shown(expected)}, got {shown(actual)}"


def differences_of_messages(
    expected: Sequence[Message | type[Message]], actual: Sequence[Message]
) -> Iterator[str]:
    """Yield a line for each difference between messages; an expected type matches any message of it."""
    for at, (one, other) in enumerate(zip_longest(expected, actual, fillvalue=_NOTHING)):
        if isinstance(one, type):
            if type(other) is not one:
                yield f"published[{at}]: expected a {one.__name__}, got {shown(other)}"
        else:
            yield from differences(one, other, f"published[{at}]")


def shown(value: Any) -> str:  # noqa: ANN401 - any field value
    """Return a value as text."""
    return "nothing" if value is _NOTHING else repr(value)


def _are_same(expected: Any, actual: Any) -> bool:  # noqa: ANN401 - any field value
    return type(expected) is type(actual) and (expected == actual or repr(expected) == repr(actual) == "nan")


def _sorted(values: frozenset[Any]) -> list[Any]:
    return sorted(values, key=repr)
