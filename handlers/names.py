"""Stable names of handlers and messages: they stand in stored keys and on the wire."""

from __future__ import annotations

import re

from handlers.errors import AppError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def stable_name(name: str, owner: str) -> str:
    """Return `name` when it may stand in keys and on the wire.

    Raises `AppError` otherwise: a handler's name is followed by "-" and the business id in a key, so it
    can hold letters, digits and underscores only.
    """
    if not _NAME.fullmatch(name):
        message = (
            f"{owner} is named {name!r}: a name has ASCII letters, digits and _ and begins with no digit."
        )
        raise AppError(message)
    return name
