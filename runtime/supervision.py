"""Supervision: a handler that hangs, crashes or exhausts memory affects only its own message.

A thread in the worker polls the current call. A signal interrupts a slow call; if native code ignores the signal,
`faulthandler` ends the process and Spark retries the task. A retried task first runs each group of calls in a fork. A
call that hangs the fork, or kills it twice, is rejected and never run in the worker.

A consumer of a live queue has no retried tasks. Its process notes the message of the current call in a file of its
own, which outlives the process. The next consumer rejects messages that were noted by two dead processes.
"""

import faulthandler
import fcntl
import functools
import hashlib
import mmap
import os
import re
import resource
import select
import signal
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

from eventstore import Table
from eventstore.port import place_of
from handlers import App, Context, Message, State
from handlers.app import CallInterceptor, HandlerDefinition, Method
from runtime.algorithms.algorithm import CallCrashedError, CallTimedOutError
from runtime.errors import UsageError
from runtime.messages.parsing import ParsingTimedOutError

GRACE_SECONDS = 5.0  # between the interruption of a call and the end of its process
_LOOKS = 5
_MOST_BETWEEN_LOOKS = 1.0
_SURVIVED = 87  # exit code of a fork that completed all calls; unlikely for a handler that exits
_DEATHS = 2  # of consumers, before the message that both were handling is rejected
_NOTE_BYTES = 16  # the hash of a message, or zeros between calls
T = TypeVar("T")
D = TypeVar("D", App, HandlerDefinition)
# Returns the context of the current call, or the number of parsed messages. `None` between calls.
Now = Callable[[], object]


def supervised(app: App, interceptor: CallInterceptor) -> App:
    """Return a copy of an app whose handlers are called through an interceptor."""
    supervised_app = _copy(app)
    supervised_app.handlers = {}
    for name, given in app.handlers.items():
        definition = _copy(given)
        definition.interceptor = interceptor
        routes = {}
        for type_, route in given.routes.items():
            revisions = {number: interceptor.method(each) for number, each in route.revisions.items()}
            routes[type_] = replace(route, revisions=revisions)
        definition.routes = MappingProxyType(routes)
        supervised_app.handlers[name] = definition
    return supervised_app


def _copy(of: D) -> D:
    copy = object.__new__(type(of))
    vars(copy).update(vars(of))
    return copy


def _interrupt(under_way: object, seconds: float) -> None:
    """Raise a timeout of `seconds` in the call `under_way`, if any. The call fails even if the handler catches it."""
    if isinstance(under_way, Context):
        under_way.exceeded = CallTimedOutError(f"The handler was interrupted after {seconds:g} s.")
        raise under_way.exceeded
    if under_way is not None:
        raise ParsingTimedOutError(f"The message's validators were interrupted after {seconds:g} s.")


class Alarm(CallInterceptor):
    """Interrupts slow calls with SIGALRM. Never ends the process.

    No-op outside the main thread, or if the program uses SIGALRM itself. Native code is interrupted when it returns.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def parse(self, run: Callable[[], T], parsed: Sequence[object]) -> T:
        """Return the result of `run`, interrupted at the time limit. Progress in `parsed` does not extend the limit."""
        return self.call(run, lambda: len(parsed))

    def call(self, run: Callable[[], T], under_way: Now) -> T:
        """Return the result of `run`, interrupted at the time limit if `under_way` then returns a call's context."""
        if not _has_alarm():
            return run()
        signal.signal(signal.SIGALRM, lambda *_: _interrupt(under_way(), self._seconds))
        signal.setitimer(signal.ITIMER_REAL, self._seconds, 1)
        try:
            return run()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _has_alarm() -> bool:
    """Return whether this is the main thread, and the program does not use SIGALRM itself."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


class Watch(CallInterceptor):
    """Supervises a worker's main thread. `is_retry`: calls first run in a fork, because one may kill its process."""

    def __init__(self, seconds: float, *, is_retry: bool = False) -> None:
        self._seconds = seconds
        self._trial = _Trial(seconds) if is_retry else None
        self._under_way: Now = lambda: None
        self._expired: object = None
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

    def method(self, method: Method) -> Method:
        """Return `method` unchanged or, in a retried task, wrapped so that the fatal call is rejected."""
        return method if self._trial is None else self._trial.method(method)

    def call(self, run: Callable[[], T], under_way: Now) -> T:
        """Return the result of `run`. Each call (`under_way`) has a time limit. A retry first runs `run` in a fork."""
        if self._trial is not None:
            self._trial.try_in_a_copy(run)
        return self._run(run, under_way)

    def parse(self, run: Callable[[], T], parsed: Sequence[object]) -> T:
        """Return the result of `run`, with a time limit for each message."""
        call = object()  # the next call may have parsed as many messages
        return self._run(run, lambda: (call, len(parsed)))

    def _run(self, run: Callable[[], T], under_way: Now) -> T:
        self._under_way = under_way
        try:
            return run()
        finally:
            self._under_way = lambda: None

    def _look_on(self) -> None:
        period = min(self._seconds / _LOOKS, _MOST_BETWEEN_LOOKS)
        seen, since = None, time.monotonic()
        while not self._ended.wait(period):
            under_way, now = self._under_way(), time.monotonic()
            if under_way is None or under_way != seen:
                seen, since = under_way, now
                self._wind_up()
                continue
            if now - since >= self._seconds:
                self._expired = under_way
                with suppress(ProcessLookupError):
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    def _interrupt(self, *_: object) -> None:
        # Another call may have begun since the thread polled.
        under_way = self._under_way()
        if under_way == self._expired:
            _interrupt(under_way, self._seconds)

    def _wind_up(self) -> None:
        faulthandler.dump_traceback_later(self._seconds + GRACE_SECONDS, exit=True, file=2)


class _Trial:
    """Finds the call that kills a process. Runs the calls in a fork, which counts them in shared memory."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._count = mmap.mmap(-1, 8)
        self._calls = 0
        self._fatal: tuple[int, BaseException] | None = None

    def method(self, method: Method) -> Method:
        """Return `method`, wrapped so that all calls are counted and the fatal call is rejected."""

        @functools.wraps(method)
        def call(state: State, message: Message, context: Context) -> State:
            self._calls += 1
            if self._fatal is not None and self._fatal[0] == self._calls:
                raise self._fatal[1]
            self._count[:] = self._calls.to_bytes(8)
            return method(state, message, context)

        return call

    def try_in_a_copy(self, run: Callable[[], object]) -> None:
        """Run calls in a forked process. If the process dies, remember the call that it was making."""
        self._calls, self._fatal = 0, None
        end = self._end_of_copy(run)
        if isinstance(end, CallCrashedError):  # something else may have killed the fork
            end = self._end_of_copy(run)
        if end is not None:
            self._fatal = int.from_bytes(self._count), end

    def _end_of_copy(self, run: Callable[[], object]) -> BaseException | None:
        """Run calls in a fork. Return an error if the fork did not complete the calls, otherwise None."""
        self._count[:] = bytes(8)
        until_it_ends, held_by_it = os.pipe()
        process = os.fork()
        if process == 0:
            with suppress(BaseException):
                faulthandler.disable()
                signal.signal(signal.SIGALRM, signal.SIG_IGN)
                run()
            os._exit(_SURVIVED)
        os.close(held_by_it)
        poll, seen, since = select.poll(), b"", time.monotonic()
        poll.register(until_it_ends)
        try:
            while True:
                poll.poll(self._seconds / _LOOKS * 1000)
                ended, status = os.waitpid(process, os.WNOHANG)
                if ended:
                    if (code := os.waitstatus_to_exitcode(status)) == _SURVIVED:
                        return None
                    end = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                    return CallCrashedError(f"The message crashed a worker and two trial processes ({end}).")
                count, now = bytes(self._count), time.monotonic()
                if count != seen:
                    seen, since = count, now
                elif now - since >= self._seconds:
                    os.kill(process, signal.SIGKILL)
                    os.waitpid(process, 0)
                    return CallTimedOutError(f"The handler was interrupted after {self._seconds:g} s.")
        finally:
            os.close(until_it_ends)


class _Noted(CallInterceptor):
    """Notes the message of each call, and rejects messages that killed consumers. `inner` limits the time of a call."""

    def __init__(self, inner: Alarm | Watch, note: mmap.mmap, salt: bytes, fatal: frozenset[bytes]) -> None:
        self._note, self._salt, self._fatal = note, salt, fatal
        self.call, self.parse = inner.call, inner.parse  # type: ignore[method-assign]

    def method(self, method: Method) -> Method:
        @functools.wraps(method)
        def call(state: State, message: Message, context: Context) -> State:
            name = context.message_id.encode()
            key = hashlib.blake2b(name, digest_size=_NOTE_BYTES, key=self._salt).digest()
            if key in self._fatal:
                raise CallCrashedError(f"The message was being handled when {_DEATHS} consumers died.")
            self._note[:] = key
            try:
                return method(state, message, context)
            finally:
                self._note[:] = bytes(_NOTE_BYTES)

        return call


@contextmanager
def consumer_watch(table: Table, seconds: float, folder: Path) -> Iterator[CallInterceptor]:
    """Context manager that yields the interceptor of a consumer, which limits each call of a handler to `seconds`.

    The notes of consumers are in `folder`, and apply to `table` only. If a handler in the main thread ignores the
    interrupt, the process is ended. Raises `UsageError` if the folder cannot be written.
    """
    salt = hashlib.blake2b("\0".join(place_of(table)).encode(), digest_size=_NOTE_BYTES).digest()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fatal = fatal_messages(folder)
        note_file = tempfile.NamedTemporaryFile(dir=folder, suffix=".note")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UsageError(f"The folder {folder} of --crashes cannot be used: {error}.") from error
    with Watch(seconds) if _has_alarm() else nullcontext(Alarm(seconds)) as inner, note_file as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(_NOTE_BYTES)
        # A note in mapped memory costs no system call.
        with mmap.mmap(file.fileno(), _NOTE_BYTES) as note:
            yield _Noted(inner, note, salt, fatal)


def fatal_messages(folder: Path) -> frozenset[bytes]:
    """Return the hashes of messages that killed too many consumers. Collects the notes of dead processes."""
    for path in folder.glob("*.note"):
        with suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held as long as its process lives
            noted = file.read()
            if len(noted) == _NOTE_BYTES:  # an empty file is about to be locked
                path.rename(folder / f"{noted.hex()}.{uuid.uuid4().hex}") if any(noted) else path.unlink()
    deaths = Counter(path.stem for path in folder.iterdir() if re.fullmatch("[0-9a-f]{32}", path.stem))
    return frozenset(bytes.fromhex(name) for name, count in deaths.items() if count >= _DEATHS)


@contextmanager
def bounded_memory(size: int | None) -> Iterator[None]:
    """Context manager that lets this process allocate only `size` more bytes (None: no limit). Linux only."""
    taken = None
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
        taken = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:")), None)
    if size is None or taken is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    most, limit = before[1], taken + size
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit if most < 0 else min(limit, most), most))
    try:
        yield
    finally:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, before)
