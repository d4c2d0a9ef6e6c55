"""Fresh ids: names that no two attempts share."""

from __future__ import annotations

import uuid
from collections.abc import Callable

NewId = Callable[[], str]
"""Returns an id of letters and digits that no call has returned before, in any process."""


def fresh_id() -> str:
    """Return 32 random hexadecimal digits."""
    return uuid.uuid4().hex
