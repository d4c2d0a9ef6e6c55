"""Time: the clock that is passed in wherever time is recorded, and times as they are stored and shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], int]
"""Gives the time in microseconds since 1970 UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

EARLIEST = (datetime(1601, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The first time that a store can hold, in microseconds since 1970."""
_LATEST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def is_in_calendar(microseconds: int) -> bool:
    """Say whether a store can hold a time."""
    return EARLIEST <= microseconds <= _LATEST


def system_clock() -> int:
    """Return the machine's time in microseconds since 1970 UTC."""
    return time.time_ns() // 1000


def cut_off(clock: Clock, older_than: timedelta) -> int:
    """Return the time, in microseconds since 1970 UTC, at or before which something is at least so old."""
    return clock() - older_than // _MICROSECOND


def to_datetime(microseconds: int) -> datetime:
    """Return the UTC time that is so many microseconds after 1970 began."""
    return _EPOCH + timedelta(microseconds=microseconds)


def shown_time(microseconds: int) -> str:
    """Return a time as text, also one that no calendar has."""
    try:
        return to_datetime(microseconds).isoformat()
    except OverflowError:
        return f"{microseconds} microseconds after 1970"


def to_microseconds(moment: datetime) -> int:
    """Return the microseconds from 1970 to a time with a time zone."""
    return (moment - _EPOCH) // _MICROSECOND
