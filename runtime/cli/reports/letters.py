"""Letters, for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import RenderableType

from runtime.algorithms.letters.lines import describe_letter
from runtime.algorithms.letters.selection import FoundLetter
from runtime.cli.reports.dead_letters import table_of_dead_letters
from runtime.cli.reports.tables import Cell, counted, make_table, moment_cell
from runtime.messages.dead_letters import DeadLetterGroups

_COLUMNS = (
    "handler",
    "business id",
    "letter",
    "message",
    "type",
    "reason",
    "refused",
    "tries",
    "behind",
    "error",
)


@dataclass(slots=True)
class LettersReport:
    """Letters that were found: the first of them, all in groups, and how many were not kept."""

    limit: int
    listed: list[FoundLetter] = field(default_factory=list)
    groups: DeadLetterGroups = field(default_factory=DeadLetterGroups)
    count: int = 0
    behind: int = 0
    beyond_limit: int = 0

    def add(self, found: FoundLetter) -> None:
        """Take another letter, which is listed up to the limit."""
        self.count_only(found)
        if not self.limit or self.count <= self.limit:
            self.listed.append(found)

    def count_only(self, found: FoundLetter) -> None:
        """Take another letter into its group."""
        self.count += 1
        self.behind += found.behind is not None
        letter = found.letter
        self.groups.add(
            letter.reason,
            found.handler,
            letter.envelope.type if letter.envelope else None,
            letter.error,
            letter.message_id,
        )

    def document(self, *, grouped: bool) -> dict[str, Any]:
        """Return the report for JSON."""
        counts = {"count": self.count, "behind": self.behind, "beyond_limit": self.beyond_limit}
        groups = [asdict(each) for each in self.groups.largest_first()]
        return {**counts, "groups": groups} | (
            {} if grouped else {"letters": [*map(describe_letter, self.listed)]}
        )

    def parts(self, *, grouped: bool) -> Iterator[RenderableType]:
        """Give the report for people."""
        if not self.count:
            yield "There are no such letters."
        elif grouped:
            groups = self.groups.largest_first()
            yield table_of_dead_letters(groups[: self.limit or None], self.count, "Letters")
        else:
            more = (
                ""
                if len(self.listed) == self.count
                else f", the first {len(self.listed):,} of {self.count:,}"
            )
            yield make_table(f"Letters{more}", _COLUMNS, map(_row, self.listed))
        if self.behind:
            yield f"{counted(self.behind, 'letter')} cannot be handled before the one that parks their stream."
        if self.beyond_limit:
            yield (
                f"Beyond the limit of their streams, {counted(self.beyond_limit, 'delivery')} in all were not kept: "
                f"they are in the outcomes only."
            )


def _row(found: FoundLetter) -> Sequence[Cell]:
    letter = found.letter
    return (
        found.handler or "(none)",
        found.business_id,
        found.name,
        letter.message_id or None,
        letter.envelope.type if letter.envelope else None,
        letter.reason.value,
        moment_cell(letter.refused_at),
        letter.tries,
        None if found.behind is None else f"{found.behind.number}: {found.behind.message_id}",
        letter.error,
    )
