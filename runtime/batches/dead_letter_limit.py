"""How many dead letters a batch may have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from runtime.errors import UsageError
from runtime.messages.outcome import Status

_FORM = re.compile(r"(\d{1,18})|(\d{1,3}(?:\.\d{1,9})?)%")

HELD_BACK = "_held-back"
"""The name of an empty file in the folder of a batch that is held back; Spark passes over it."""


@dataclass(frozen=True, slots=True)
class DeadLetterLimit:
    """A number of deliveries, or a share of all in percent."""

    text: str
    number: int | None
    percent: float | None

    @classmethod
    def parse(cls, text: str) -> DeadLetterLimit:
        """Return the limit that a text such as `10` or `0.5%` means. Raises `UsageError` for another text."""
        found = _FORM.fullmatch(text.strip())
        if found is None or (found[2] and float(found[2]) > 100):  # noqa: PLR2004 - percent
            message = f"{text!r} is no number of dead letters: write one such as 10, or a share such as 0.5%."
            raise UsageError(message)
        return cls(found[0], int(found[1]) if found[1] else None, float(found[2]) if found[2] else None)

    def is_exceeded(self, counts: Mapping[str, int]) -> bool:
        """Say whether a batch with these counts of outcomes by status has more."""
        dead = counts.get(Status.DEAD_LETTER, 0)
        if self.percent is None:
            return dead > (self.number or 0)
        return 100 * dead > self.percent * sum(counts.get(status, 0) for status in Status)

    def __str__(self) -> str:
        return self.text
