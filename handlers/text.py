"""Text that can be stored and sent."""

from __future__ import annotations


def is_text(value: object) -> bool:
    """Say whether a value is text that can be written as UTF-8: a str may also hold half of a character."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
