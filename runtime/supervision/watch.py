"""The watch over the calls of a worker: those that take too long are interrupted, and a worker that cannot be is ended.

Calls are counted and never timed, so that one costs next to nothing. A thread looks now and then whether the count is
still the same. When a call has taken too long, it sends the main thread a signal, whose handler raises there. Code in
C that looks at no signals, or keeps the interpreter to itself, is ended with its process by a timer of
`faulthandler`, which needs no interpreter: the thread winds it up again as long as all is well.
"""

from __future__ import annotations

import faulthandler
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Self

from handlers import Context, Message, State
from handlers.route import Method
from runtime.algorithms.invocation import CallCrashedError, CallTimedOutError, took_too_long
from runtime.messages.parsing import ParsingTimedOutError, validators_took_too_long
from runtime.supervision.isolation import End, end_of
from runtime.supervision.note import Note

GRACE_SECONDS = 5.0
"""How much longer a call may take, once it was interrupted, before its process is ended."""

SLOW_SECONDS = 2.0
"""How long a call takes before its message is told to whoever looks on."""

_LOOKS = 5
_MOST_BETWEEN_LOOKS = 1.0

Tell = Callable[[str], None]
"""Is told the id of a message that takes long."""


class Now:
    """What is being handled now: `message_id`, None when nothing is, in the last of so many `calls`.

    `expired` is the number of the call that has taken too long.
    """

    __slots__ = ("calls", "expired", "message_id")

    def __init__(self) -> None:
        self.calls = 0
        self.expired = 0
        self.message_id: str | None = None


class Watch:
    """Calls handlers in the main thread of a process that may be ended.

    `note` has the id of the message that is being handled. `suspects` are those during which a process like this one
    has died: each is handled in a process of its own before.
    """

    def __init__(
        self, seconds: float, note: Note, suspects: Collection[str] = (), tell: Tell = lambda _: None
    ) -> None:
        self._seconds = seconds
        self._note = note
        self._suspects = frozenset(suspects)
        self._tell = tell
        self._now = Now()
        self._parsed: Sequence[object] | None = None
        self._expired_at = 0
        self._ended = threading.Event()
        self._before: Any = None
        self._thread = threading.Thread(target=self._look_on, name="handler-watch", daemon=True)

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGALRM, self._interrupt)
        self._wind_up()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, self._before)

    def supervise(self, method: Method) -> Method:
        """Return a method that calls this one, and raises `CallTimedOutError` when it takes too long.

        It has taken too long whatever it does about the error that is raised in it. The note of a message stays until
        the next one is handled: should the process die between, that message is tried apart, and survives.
        """
        now, suspects, note = self._now, self._suspects, self._note

        def call(state: State, message: Message, context: Context) -> State:
            message_id = context._message_id  # noqa: SLF001 - the property takes twice as long as a note
            if message_id in suspects:
                self._try_apart(method, state, message, context)
            now.calls += 1
            now.message_id = message_id
            try:
                note.write(message_id)
                return method(state, message, context)
            finally:
                now.message_id = None
                if now.expired == now.calls:
                    self._expire()

        return call

    def _expire(self) -> None:
        """Raise that a call has taken too long."""
        raise CallTimedOutError(took_too_long(self._seconds))

    @contextmanager
    def parsing(self, parsed: Sequence[object]) -> Iterator[None]:
        """Raise `ParsingTimedOutError` in the block when it takes too long until one more is `parsed`.

        Costs nothing for each message: the thread looks at how many there are.
        """
        self._now.calls += 1
        self._parsed = parsed
        self._now.message_id = "that is being parsed"
        try:
            yield
        finally:
            self._now.message_id = self._parsed = None

    def _try_apart(self, method: Method, state: State, message: Message, context: Context) -> None:
        """Raise what is to be told of a message that ends a process like this one, or is too slow for it."""
        end = end_of(lambda: method(state, message, context), self._seconds)
        if end is End.TIMED_OUT:
            raise CallTimedOutError(took_too_long(self._seconds))
        if end is not None:
            problem = (
                f"A worker died while it handled this message, and so did a process apart from it: {end}."
            )
            raise CallCrashedError(problem)

    def _look_on(self) -> None:
        period = min(self._seconds / _LOOKS, _MOST_BETWEEN_LOOKS)
        seen, since = (0, 0), time.monotonic()
        while not self._ended.wait(period):
            calls, message_id, now = self._now.calls, self._now.message_id, time.monotonic()
            count = len(self._parsed or ())
            if (calls, count) != seen or message_id is None:
                seen, since = (calls, count), now
                self._wind_up()
                continue
            if now - since >= SLOW_SECONDS:
                self._tell(message_id)
            if now - since >= self._seconds:
                self._now.expired, self._expired_at = calls, count
                with suppress(ProcessLookupError):
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signals are handled
        # Between two instructions of the main thread, so that no other call can have begun.
        if self._now.message_id is None or self._now.expired != self._now.calls:
            return
        if self._parsed is None:
            raise CallTimedOutError(took_too_long(self._seconds))
        if self._expired_at == len(self._parsed):
            raise ParsingTimedOutError(validators_took_too_long(self._seconds))

    def _wind_up(self) -> None:
        faulthandler.dump_traceback_later(self._seconds + GRACE_SECONDS, exit=True, file=2)
