"""The options by which commands choose letters."""

from __future__ import annotations

from typing import Annotated

import typer

from runtime.algorithms.letters.selection import Selection
from runtime.cli.durations import parse_duration
from runtime.clock import system_clock
from runtime.errors import UsageError
from runtime.messages.outcome import Reason

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


def make_selection(
    message: str | None,
    reason: Reason | None,
    handler: str | None,
    stream: str | None,
    older_than: int | None,
) -> Selection:
    """Return the selection that options make. Raises `UsageError` for what names no stream."""
    until = None if older_than is None else system_clock() - older_than
    return Selection(message, reason, handler, None if stream is None else _parse_stream(stream), until)


def _parse_stream(text: str) -> tuple[str, str]:
    handler, _, business_id = text.partition("/")
    if not (handler and business_id):
        raise UsageError(f"{text!r} names no stream: write HANDLER/BUSINESS_ID.")
    return handler, business_id


def check_chosen(selection: Selection, *, is_enough: bool) -> None:
    """Raise `UsageError` when nothing says which letters are meant."""
    if selection.is_all and not is_enough:
        raise UsageError(
            "Say which letters: --message ID, --reason R, --handler H, --stream H/ID, --older-than AGE, or --all."
        )
