"""The options by which commands choose dead letters."""

from __future__ import annotations

from dataclasses import dataclass
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
