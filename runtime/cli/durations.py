"""Durations as people write them: 30s, 15m, 24h, 7d, 2w."""

from __future__ import annotations

import re

import typer

FORMS = "30s, 15m, 24h, 7d or 2w"

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
_MICROSECONDS = 1_000_000
_DURATION = re.compile(r"([0-9]{1,9})([smhdw])")


def parse_duration(text: str) -> int:
    """Return the microseconds of a duration: a whole number and one of s, m, h, d, w.

    Raises `typer.BadParameter` for anything else.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no duration: write {FORMS}.")
    return int(match[1]) * _SECONDS[match[2]] * _MICROSECONDS


def duration_text(microseconds: int) -> str:
    """Return a duration as `parse_duration` takes it, in the largest unit that it is whole in."""
    seconds = microseconds // _MICROSECONDS
    unit = max((unit for unit, each in _SECONDS.items() if seconds % each == 0), key=_SECONDS.__getitem__)
    return f"{seconds // _SECONDS[unit]}{unit}"
