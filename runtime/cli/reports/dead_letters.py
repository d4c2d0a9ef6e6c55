"""Dead letters for people, group by group."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from runtime.cli.reports.tables import make_table
from runtime.messages.dead_letters import DeadLetters

_COLUMNS = ("deliveries", "reason", "handler", "type", "error", "messages")


def table_of_dead_letters(
    groups: Sequence[DeadLetters], total: int, what: str = "Dead letters"
) -> RenderableType:
    """Return a row for each group, with the error and the ids of some of its messages."""
    shown = sum(group.count for group in groups)
    title = what if shown == total else f"{what}, {shown:,} of {total:,}"
    return make_table(f"{title}, by reason and error", _COLUMNS, map(_row, groups))


def _row(group: DeadLetters) -> tuple[str | int | None, ...]:
    more = ", ..." if group.count > len(group.message_ids) > 0 else ""
    ids = ", ".join(group.message_ids) + more
    return group.count, group.reason, group.handler, group.type, group.error, ids or None
