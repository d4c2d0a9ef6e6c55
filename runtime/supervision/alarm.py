"""An alarm for single messages: a handler that takes too long in the main thread is interrupted by a signal."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from handlers import Context, Message, State
from handlers.route import Method
from runtime.algorithms.invocation import CallTimedOutError, took_too_long


class Alarm:
    """Calls handlers with a timer of the process, SIGALRM.

    In another thread than the main one, and where a program uses this signal itself, a call takes as long as it takes.
    A handler that calls C code which looks at no signals is interrupted when that returns.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def call(self, method: Method, state: State, message: Message, context: Context) -> State:
        """Call a method, and raise `CallTimedOutError` when it takes too long, whatever the method does about that."""
        if (
            threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL
        ):
            return method(state, message, context)
        ringing = _Ringing(self._seconds)
        signal.signal(signal.SIGALRM, ringing.ring)
        signal.setitimer(signal.ITIMER_REAL, self._seconds, 1)
        try:
            return method(state, message, context)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            if ringing.has_rung:
                raise CallTimedOutError(took_too_long(self._seconds))


class _Ringing:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.has_rung = False

    def ring(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signals are handled
        self.has_rung = True
        raise CallTimedOutError(took_too_long(self._seconds))
