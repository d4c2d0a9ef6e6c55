"""Selections of letters, and letters as they are found in a table."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.errors import UsageError
from runtime.messages.message_ids import canonical
from runtime.messages.outcome import Reason
from runtime.storage.letters import Letter


@dataclass(frozen=True, slots=True)
class FoundLetter:
    """A letter and where it waits.

    `handler` and `business_id` name its stream. A letter of the table has no stream: it has no business id, a handler
    only if one takes its type, and the `row` that it is in, under this ETag. `behind` is the letter that parks the
    stream before it.
    """

    letter: Letter
    handler: str | None
    business_id: str | None
    behind: Letter | None = None
    row: str | None = None
    etag: str | None = None

    @property
    def name(self) -> str:
        """What tells it from the other letters of its stream, or of the table."""
        return self.row or str(self.letter.number)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which letters are meant: those to which all applies that is given.

    `stream` is a handler and a business id. `refused_until` is a time in microseconds since 1970 UTC: letters that were
    refused later are not meant.
    """

    message_id: str | None = None
    reason: Reason | str | None = None
    handler: str | None = None
    stream: tuple[str, str] | None = None
    refused_until: int | None = None

    def __post_init__(self) -> None:
        if self.reason is not None and self.reason not in set(Reason):
            raise UsageError(f"There is no reason {self.reason!r}: use one of {', '.join(Reason)}.")

    @property
    def is_all(self) -> bool:
        """Whether all letters are meant."""
        return self == Selection()

    @property
    def handler_of_streams(self) -> str | None:
        """The handler whose streams may have such letters, None for all."""
        return self.handler if self.stream is None else self.stream[0]

    @property
    def keys(self) -> list[str] | None:
        """The partition keys of the one stream that is meant, by the spellings of its business id; None for all."""
        if self.stream is None:
            return None
        handler, business_id = self.stream
        return [f"{handler}-{spelling}" for spelling in dict.fromkeys([business_id, canonical(business_id)])]

    def takes(self, handler: str | None, letter: Letter) -> bool:
        """Say whether a letter of a stream that is meant, or of the table, is meant."""
        return (
            letter.waits
            and (self.handler is None or handler == self.handler)
            and (self.reason is None or letter.reason == self.reason)
            and (self.message_id is None or letter.message_id == canonical(self.message_id))
            and (self.refused_until is None or letter.refused_at <= self.refused_until)
        )

    def described(self) -> str:
        """Return what is selected, in words."""
        stream = None if self.stream is None else "/".join(self.stream)
        given = [
            ("message", self.message_id),
            ("reason", self.reason),
            ("handler", self.handler),
            ("stream", stream),
            ("refused until", self.refused_until),
        ]
        return ", ".join(f"{name} {value}" for name, value in given if value is not None) or "all"
