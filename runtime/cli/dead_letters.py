"""Dead letters on the command line: the options that select them, and the tables that show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from runtime.cli.console import Cell, counted, make_table, moment_cell
from runtime.cli.options import parse_duration
from runtime.clock import system_clock
from runtime.dead_letters import FoundLetter, Selection, describe_letter
from runtime.errors import UsageError
from runtime.messages.outcome import DeadLetterGroups, DeadLetters, Reason

# Dead letters for people, group by group.
#
# The options by which commands choose dead letters.

MessageOption = Annotated[
    str | None, typer.Option("--message", metavar="ID", help="Only letters of the message with this id.")
]
ReasonOption = Annotated[
    Reason | None, typer.Option("--reason", metavar="REASON", help="Only letters with this reason.")
]
HandlerOption = Annotated[
    str | None, typer.Option("--handler", metavar="NAME", help="Only letters of this handler.")
]
StreamOption = Annotated[
    str | None,
    typer.Option(
        "--stream",
        metavar="HANDLER/ID",
        help="Only letters of the stream of this handler and business object.",
    ),
]
AgeOption = Annotated[
    int | None,
    typer.Option(
        "--older-than",
        parser=parse_duration,
        metavar="AGE",
        help="Only letters refused last 7d, 24h ... ago.",
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="All letters of the table.")]


@dataclass(frozen=True)
class LetterOptions:
    """Which dead letters are meant."""

    message: MessageOption = None
    reason: ReasonOption = None
    handler: HandlerOption = None
    stream: StreamOption = None
    older_than: AgeOption = None

    def selection(self, *, must_choose: bool = False) -> Selection:
        """Return the letters that are meant.

        Raises `UsageError` for what names no stream, and with `must_choose` when nothing says which letters are meant.
        """
        stream = None
        if self.stream is not None:
            handler, _, business_id = self.stream.partition("/")
            if not (handler and business_id):
                raise UsageError(f"{self.stream!r} names no stream: write HANDLER/BUSINESS_ID.")
            stream = handler, business_id
        until = None if self.older_than is None else system_clock() - self.older_than
        selection = Selection(self.message, self.reason, self.handler, stream, until)
        if must_choose and selection.is_all:
            raise UsageError(
                "Say which letters: --message ID, --reason R, --handler H, --stream H/ID, --older-than AGE, or --all."
            )
        return selection


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


# Letters, for people and for machines.

_LETTER_COLUMNS = (
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
            yield make_table(f"Letters{more}", _LETTER_COLUMNS, map(_letter_row, self.listed))
        if self.behind:
            yield f"{counted(self.behind, 'letter')} cannot be handled before the one that parks their stream."
        if self.beyond_limit:
            yield (
                f"Beyond the limit of their streams, {counted(self.beyond_limit, 'delivery')} in all were not kept: "
                f"they are in the outcomes only."
            )


def _letter_row(found: FoundLetter) -> Sequence[Cell]:
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
