"""Sizes as people write them: 1000, 64KiB, 1MiB, 2GiB."""

from __future__ import annotations

import re

import typer

FORMS = "1000, 64KiB, 1MiB or 2GiB"

_BYTES = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"([0-9]{1,15})\s*(|B|KIB|MIB|GIB)")


def size_text(size: int) -> str:
    """Return a size as `parse_size` takes it, in the largest unit that it is whole in."""
    unit = max((unit for unit, each in _BYTES.items() if size % each == 0), key=_BYTES.__getitem__)
    return f"{size // _BYTES[unit]}{unit.replace('I', 'i')}"


def parse_size(text: str) -> int:
    """Return the bytes of a size: a whole number and none or one of KiB, MiB, GiB.

    Raises `typer.BadParameter` for anything else, and for 0.
    """
    match = _SIZE.fullmatch(text.strip().upper())
    size = int(match[1]) * _BYTES[match[2]] if match else 0
    if not size:
        raise typer.BadParameter(f"{text!r} is no size: write {FORMS}.")
    return size
