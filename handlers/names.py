"""Stable names of handlers and messages: they are part of stored keys and of messages on the wire."""

from __future__ import annotations

import re

from handlers.errors import AppError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def stable_name(name: str, owner: str) -> str:
    """Return `name` when it is valid in keys and on the wire.

    Raises `AppError` otherwise: in a key, a handler's name is followed by "-" and the business id, so it consists of
    letters, digits and underscores. `owner` is what the error calls the class.
    """
    if not _NAME.fullmatch(name):
        raise AppError(
            f"{owner} is named {name!r}: use ASCII letters, digits and _ only, and no digit first."
        )
    return name
