"""The clock that is passed in wherever time is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Gives the time in microseconds since 1970 UTC."""


def system_clock() -> int:
    """Return the machine's time in microseconds since 1970 UTC."""
    return time.time_ns() // 1000
