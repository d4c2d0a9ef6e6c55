"""Marks: what only tells processes and writes apart. Ids that were drawn, ETags, and the numbers of runs; and times.

Code may ask whether two marks are equal, and which of two times is the later one. Nothing else hangs on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple

from runtime.clock import to_datetime
from tests.model.processes import DRAWN, NOW, SECOND

Mark = tuple[str, int, int]
"""What a mark is: the kind, the number of the process or the write, and which of its draws."""

_HALF_A_DAY = 12 * 60 * 60 * SECOND
_MICROSECOND = timedelta(microseconds=1)
_NOW = to_datetime(NOW)
_FOUND = re.compile(
    r"(?:e-tag|colour|run) \d+|[0-9a-f]{12,64}|20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?\+00:00"
)


class Part(NamedTuple):
    """A mark, or a time, in a text, in some form."""

    form: str
    what: Mark | int


@cache
def parts(text: str) -> tuple[str | Part, ...]:
    """Return a text in parts: what is the same in all processes, and between it marks and times."""
    return tuple(_parts(text))


def time_of(value: int | datetime) -> int | None:
    """Return the time, in microseconds, that a number or a date is; None when no process lives then."""
    at = value if isinstance(value, int) else NOW + (value - _NOW) // _MICROSECOND
    return int(at) if abs(at - NOW) < _HALF_A_DAY else None


def _parts(text: str) -> Iterator[str | Part]:
    at = 0
    for match in _FOUND.finditer(text):
        part = _part(match[0])
        if part is not None:
            yield text[at : match.start()]
            yield part
            at = match.end()
    yield text[at:]


def _part(word: str) -> Part | None:
    if word in DRAWN:
        form, number, draw = DRAWN[word]
        return Part(form, ("drawn", number, draw))
    form, _, count = word.rpartition(" ")
    if form:
        return Part(form, ("e-tag" if form == "e-tag" else "run", int(count), 0))
    time = time_of(datetime.fromisoformat(word)) if "T" in word else None
    return None if time is None else Part("iso", time)
