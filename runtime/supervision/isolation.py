"""Isolation: a call is tried in a copy of the process, to see whether the process survives it."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum

_SURVIVED = 87
"""The exit code of a copy that came to the end of the call; whoever ends the process by itself gives another one."""

_TRIES = 2
_EVERY_SECONDS = 0.005


class End(StrEnum):
    """An end that is no death."""

    TIMED_OUT = "it took too long"


def end_of(call: Callable[[], object], seconds: float) -> str | End | None:
    """Return how a copy of this process ends that makes a call, None when it survives; it may take so many seconds.

    A copy that dies is tried a second time, as something else may have killed it.
    """
    end: str | End | None = None
    for _ in range(_TRIES):
        end = _try(call, seconds)
        if end is None or end is End.TIMED_OUT:
            return end
    return end


def _try(call: Callable[[], object], seconds: float) -> str | End | None:
    copy = os.fork()
    if copy == 0:
        _make(call)
    latest = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(copy, os.WNOHANG)
        if ended:
            return _told(os.waitstatus_to_exitcode(status))
        if time.monotonic() > latest:
            os.kill(copy, signal.SIGKILL)
            os.waitpid(copy, 0)
            return End.TIMED_OUT
        time.sleep(_EVERY_SECONDS)


def _make(call: Callable[[], object]) -> None:
    """Make a call in a copy of the process, and end it without any of what belongs to the process it was copied of."""
    with suppress(BaseException):
        faulthandler.disable()
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        call()
    os._exit(_SURVIVED)


def _told(code: int) -> str | None:
    if code == _SURVIVED:
        return None
    if code < 0:
        return f"it was killed by {signal.Signals(-code).name}"
    return f"it ended itself with exit code {code}"
