"""Letters as facts: the refused deliveries that a table in memory holds of the book, read by the shipped reader."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from runtime.messages.outcome import Reason
from runtime.versions.dead_letters import PREFIX, Kind, read_letters
from tests.model.contents import Snapshot
from tests.model.scribe import BOOK


class LetterPlace(NamedTuple):
    """Where a letter stands."""

    number: int


class Refused(NamedTuple):
    """What a letter says: the message that was refused, its body, why, by which batch, and how often it was tried."""

    message: str
    content: bytes
    kind: Kind
    reason: Reason
    batch: str | None
    tries: int
    parks: bool

    def __str__(self) -> str:
        """Return it as schedules show it."""
        return f"{self.message} refused: {self.reason}"


def committed_letters(snapshot: Snapshot) -> Mapping[Hashable, Refused]:
    """Return the letters that a table holds, by their places."""
    rows = snapshot.tables.get("states", {}).get(f"Scribe-{BOOK}", {})
    letters = read_letters([rows[key] for key in sorted(rows) if key.startswith(PREFIX)])
    return {
        LetterPlace(letter.number): Refused(
            letter.message_id, letter.content, letter.kind, letter.reason, letter.batch, letter.tries, letter.parks
        )
        for letter in letters.all
    }  # fmt: skip
