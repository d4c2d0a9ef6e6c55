"""An alarm for single messages: a handler that takes too long in the main thread is interrupted by a signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType

from handlers import Context, Message, State
from handlers.route import Method
from runtime.algorithms.invocation import CallTimedOutError, took_too_long
from runtime.messages.parsing import ParsingTimedOutError, validators_took_too_long


class Alarm:
    """Calls handlers with a timer of the process, SIGALRM.

    In another thread than the main one, and where a program uses this signal itself, a call takes as long as it takes.
    A handler that calls C code which looks at no signals is interrupted when that returns.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def supervise(self, method: Method) -> Method:
        """Return a method that calls this one, and raises `CallTimedOutError` when it takes too long."""
        return partial(self._call, method)

    def _call(self, method: Method, state: State, message: Message, context: Context) -> State:
        """Call a method. It has taken too long whatever it does about the error that is raised in it."""
        ringing = _Ringing(CallTimedOutError(took_too_long(self._seconds)))
        with self._set(ringing):
            try:
                return method(state, message, context)
            finally:
                if ringing.has_rung:
                    raise ringing.error

    @contextmanager
    def parsing(self, parsed: Sequence[object]) -> Iterator[None]:  # noqa: ARG002 - there is one message only
        """Raise `ParsingTimedOutError` in the block when it takes too long."""
        with self._set(_Ringing(ParsingTimedOutError(validators_took_too_long(self._seconds)))):
            yield

    @contextmanager
    def _set(self, ringing: _Ringing) -> Iterator[None]:
        if (
            threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL
        ):
            yield
            return
        signal.signal(signal.SIGALRM, ringing.ring)
        signal.setitimer(signal.ITIMER_REAL, self._seconds, 1)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)


class _Ringing:
    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.has_rung = False

    def ring(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signals are handled
        self.has_rung = True
        raise self.error
