"""Dead letters in groups: of one reason, handler and type, whose errors differ in numbers and quoted values only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

VARYING = r"""'[^']*'|"[^"]*"|-?\d+"""
"""What may differ between the errors of a group: a regular expression for Python and for Spark."""

_VARYING = re.compile(VARYING)
_EXAMPLES = 2


@dataclass(slots=True)
class DeadLetters:
    """A group: how many deliveries, the error of one of them, and two of their message ids at most."""

    reason: str
    handler: str | None
    type: str | None
    error: str
    count: int
    message_ids: list[str] = field(default_factory=list)


def without_values(error: str) -> str:
    """Return an error without its numbers and quoted values."""
    return _VARYING.sub("", error)


def group_dead_letters(rows: Iterable[Mapping[str, Any]]) -> list[DeadLetters]:
    """Return the groups of dead letters, the largest first, from rows with the columns of outcomes."""
    found: dict[tuple[Any, ...], DeadLetters] = {}
    for row in rows:
        key = (row["reason"], row["handler"], row["type"], without_values(row["error"]))
        group = found.get(key)
        if group is None:
            group = found[key] = DeadLetters(row["reason"], row["handler"], row["type"], row["error"], 0)
        group.count += 1
        id_ = row["message_id"]
        if id_ is not None and id_ not in group.message_ids and len(group.message_ids) < _EXAMPLES:
            group.message_ids.append(id_)
    return sorted(found.values(), key=lambda group: (-group.count, group.reason, group.error))
