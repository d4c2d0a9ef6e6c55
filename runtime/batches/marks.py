"""The mark of a round that is in place: an empty file whose name says which files the round has, and of what sizes."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

MARK = "_batch"


def mark_prefix(token: str) -> str:
    """Return how the marks of a batch begin, whose token the ledger has."""
    return f"{MARK}-{token}-"


def mark_of(token: str, sizes: Mapping[str, int]) -> str:
    """Return the name of the mark of a round with these files."""
    return mark_prefix(token) + sha256(repr(sorted(sizes.items())).encode()).hexdigest()[:32]
