"""Ages: what is older than a time span, by a clock that is given."""

from __future__ import annotations

from datetime import timedelta

from runtime.clock import Clock

_MICROSECOND = timedelta(microseconds=1)


def cut_off(clock: Clock, older_than: timedelta) -> int:
    """Return the time, in microseconds since 1970, at or before which something is at least so old."""
    return clock() - older_than // _MICROSECOND
