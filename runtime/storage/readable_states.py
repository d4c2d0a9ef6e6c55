"""States as people read them: the stored JSON, and what one version changed, field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ABSENT = "(absent)"
"""What a field is shown as that one of two states does not have."""


@dataclass(frozen=True, slots=True)
class Change:
    """One field that is not the same before and after; `field` is its dotted path."""

    field: str
    before: Any
    after: Any


def decode(encoded: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return the JSON value of an encoded state; hexadecimal digits for bytes that are no JSON."""
    try:
        return json.loads(encoded)
    except ValueError:
        return encoded.hex()


def changes(before: Any, after: Any, path: str = "") -> list[Change]:  # noqa: ANN401 - any JSON values
    """Return the fields that differ, in the state's order; objects are compared by field, lists as a whole."""
    return list(_changes(before, after, path))


def _changes(before: Any, after: Any, path: str) -> Iterator[Change]:  # noqa: ANN401 - any JSON values
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in {**before, **after}:
            inner = f"{path}.{name}" if path else str(name)
            yield from _changes(before.get(name, ABSENT), after.get(name, ABSENT), inner)
    elif not _same(before, after):
        yield Change(path, before, after)


def _same(before: Any, after: Any) -> bool:  # noqa: ANN401 - any JSON values
    # 1, 1.0 and true are equal in Python, and three things in a state.
    return json.dumps(before) == json.dumps(after)
