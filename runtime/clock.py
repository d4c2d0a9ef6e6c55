"""Clocks, and conversions between stored times and datetimes."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], int]
"""Returns the time in microseconds since 1970 UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

EARLIEST = (datetime(1601, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The earliest time that stores can represent, in microseconds since 1970."""
_LATEST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def is_in_calendar(microseconds: int) -> bool:
    """Return whether stores can represent a time, in microseconds since 1970 UTC."""
    return EARLIEST <= microseconds <= _LATEST


def system_clock() -> int:
    """Return the machine's time in microseconds since 1970 UTC."""
    return time.time_ns() // 1000


def cut_off(clock: Clock, older_than: timedelta) -> int:
    """Return the time `older_than` ago, in microseconds since 1970 UTC."""
    return clock() - older_than // _MICROSECOND


def to_datetime(microseconds: int) -> datetime:
    """Convert microseconds since 1970 UTC to a UTC datetime."""
    return _EPOCH + timedelta(microseconds=microseconds)


def moment(microseconds: int | None) -> datetime | None:
    """Convert microseconds since 1970 UTC to a UTC datetime. None stays None."""
    return None if microseconds is None else to_datetime(microseconds)


def shown_time(microseconds: int) -> str:
    """Format microseconds since 1970 UTC in ISO 8601 or, if datetime cannot represent the time, as a number."""
    try:
        return to_datetime(microseconds).isoformat()
    except OverflowError:
        return f"{microseconds} microseconds after 1970"


def to_microseconds(moment: datetime) -> int:
    """Convert an aware datetime to microseconds since 1970 UTC."""
    return (moment - _EPOCH) // _MICROSECOND
