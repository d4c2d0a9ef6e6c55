"""Fresh ids: for what must never have the same name twice, as what one attempt makes."""

from __future__ import annotations

import uuid
from collections.abc import Callable

NewId = Callable[[], str]
"""Gives an id of letters and digits that was never given before, by anybody."""


def fresh_id() -> str:
    """Return a random id of 32 characters."""
    return uuid.uuid4().hex
