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


class DeadLetterGroups:
    """Groups of dead letters that are added one by one."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], DeadLetters] = {}

    def add(
        self, reason: str, handler: str | None, type_: str | None, error: str, message_id: str | None
    ) -> None:
        """Count a dead letter in its group."""
        key = (reason, handler, type_, without_values(error))
        group = self._found.get(key)
        if group is None:
            group = self._found[key] = DeadLetters(reason, handler, type_, error, 0)
        group.count += 1
        if message_id and message_id not in group.message_ids and len(group.message_ids) < _EXAMPLES:
            group.message_ids.append(message_id)

    def largest_first(self) -> list[DeadLetters]:
        """Return the groups, the largest first."""
        return sorted(self._found.values(), key=lambda group: (-group.count, group.reason, group.error))


def group_dead_letters(rows: Iterable[Mapping[str, Any]]) -> list[DeadLetters]:
    """Return the groups of dead letters, the largest first, from rows with the columns of outcomes."""
    groups = DeadLetterGroups()
    for row in rows:
        groups.add(row["reason"], row["handler"], row["type"], row["error"], row["message_id"])
    return groups.largest_first()
