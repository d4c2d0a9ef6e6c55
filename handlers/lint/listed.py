"""Lists of names, written as words."""

from __future__ import annotations


def listed(words: str, prefix: str = "") -> frozenset[str]:
    """Return the words of a text, each after the prefix."""
    return frozenset(f"{prefix}{word}" for word in words.split())
