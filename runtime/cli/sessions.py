"""Spark sessions of commands: started with a word to the user, quiet, and ended well whatever happens."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from runtime.cli.console import Screen, notes
from runtime.cli.failures import INTERRUPTED, TERMINATED, NotPossibleError, traced
from runtime.cli.log_file import logging_to, prepare_log
from runtime.cli.progress import StepProgress

if TYPE_CHECKING:
    from runtime.spark.sessions.session import Session

    ShownSession = tuple[Session, StepProgress]
    """A session, and what shows how far its work is."""

_AGAIN_SECONDS = 0.05
"""By then the object is freed."""


@contextmanager
def working(
    master: str,
    log_file: Path | None,
    *,
    when_stopped: str,
    keep_steps: bool = True,
    settings: Mapping[str, str] | None = None,
) -> Iterator[ShownSession]:
    """Start Spark, give the session and the progress to report steps to, and stop it.

    After Ctrl-C the sentence `when_stopped` is said, and the process exits with 130; after SIGTERM with 143. Raises
    `NotPossibleError` when there is no Java, and `UnexpectedError` for what nobody thought of, its trace in the log
    file.
    """
    from runtime.spark.sessions.java import JAVA_MISSING, find_java
    from runtime.spark.sessions.kinds import is_remote

    if not is_remote(master) and find_java() is None:
        raise NotPossibleError(JAVA_MISSING)
    try:
        log = prepare_log(log_file)
        session = _shown_session(master, log, notes(), keep_steps=keep_steps, settings=settings)
        with _told_to_end(), _never_ignored(), logging_to(log), traced(log), session as shown:
            yield shown
    except KeyboardInterrupt as interrupt:
        Screen().note(when_stopped)
        raise typer.Exit(TERMINATED if isinstance(interrupt, _TerminatedError) else INTERRUPTED) from None


@contextmanager
def _shown_session(
    master: str, log_file: Path, console: Console, *, keep_steps: bool, settings: Mapping[str, str] | None
) -> Iterator[ShownSession]:
    """Start Spark, give the session with the progress of its work, and stop it.

    What Spark and its workers print goes to the log file.
    """
    from runtime.spark.sessions.failures import unless_gone
    from runtime.spark.sessions.kinds import is_remote
    from runtime.spark.sessions.session import build_session, connect_session

    progress = StepProgress(console, keep_steps=keep_steps)
    progress.step("Connecting to Spark" if is_remote(master) else "Starting Spark")
    try:
        with _own_interrupts():
            if is_remote(master):
                spark = connect_session(master)
            else:
                spark = build_session(master, log_file=log_file, settings=settings)
        try:
            yield spark, progress
        except BaseException as error:
            interrupt = _interrupt_behind(error)
            if interrupt is None:
                spark.stop()
                raise
            # The call that was interrupted has broken the connection to Spark.
            with unless_gone():
                spark.stop()
            raise interrupt from None
        spark.stop()
    except BaseException:
        progress.failed()
        raise
    progress.done()


def _interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Return the interrupt that an error came after, if it did: PySpark calls Java while it is passed on, and fails."""
    seen: list[BaseException] = []
    while not isinstance(error, KeyboardInterrupt):
        seen.append(error)
        following = error.__cause__ or error.__context__
        if following is None or following in seen:
            return None
        error = following
    return error


class _TerminatedError(KeyboardInterrupt):
    """Raised in the main thread on SIGTERM: everything ends as it does after Ctrl-C."""


@contextmanager
def _told_to_end() -> Iterator[None]:
    """Let SIGTERM end what is in the block in good order, where the process would be gone at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def _terminate(*_: object) -> None:
    raise _TerminatedError


@contextmanager
def _never_ignored() -> Iterator[None]:
    """Raise an interrupt again that came while Python was freeing an object, where it passes nothing on.

    Py4J frees its objects so, thousands in a batch: each is a moment in which Ctrl-C would be lost.
    """
    hook = sys.unraisablehook

    def again(ignored: sys.UnraisableHookArgs) -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            number = signal.SIGTERM if issubclass(ignored.exc_type, _TerminatedError) else signal.SIGINT
            threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number)).start()
        else:
            hook(ignored)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = hook


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep Ctrl-C as it is: PySpark's own handler calls into the JVM while a call is under way, and fails."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
