"""Spark sessions of commands: started with a word to the user, quiet, and ended well whatever happens."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from runtime.cli.console import Screen, StepProgress, notes
from runtime.cli.failures import INTERRUPTED, TERMINATED, NotPossibleError, logging_to, prepare_log, traced
from runtime.errors import UsageError

if TYPE_CHECKING:
    from runtime.spark.session import Session

    ShownSession = tuple[Session, StepProgress]
    """A session, and what shows how far its work is."""


_MASTER = re.compile(r"local(\[\s*(\d+|\*)\s*(,\s*\d+\s*)?\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn")


def check_place(master: str | None, remote: str | None = None) -> None:
    """Raise `UsageError` for what is no master of Spark, or no url of a server of Spark Connect."""
    if remote is not None and not re.fullmatch(r"sc://[^/]+(/.*)?", remote):
        raise UsageError(f"{remote!r} is no url of Spark Connect: write sc://HOST:PORT.")
    if remote is None and master is not None and not _MASTER.fullmatch(master):
        raise UsageError(
            f"{master!r} is no master of Spark: write local[*], local[4], spark://HOST:PORT, yarn or k8s://URL."
        )


@contextmanager
def working(
    master: str,
    log_file: Path | None,
    *,
    when_stopped: str,
    keep_steps: bool = True,
    settings: Mapping[str, str] | None = None,
) -> Iterator[ShownSession]:
    """Start Spark, yield the session and the progress to report steps to, and stop it.

    What Spark and its workers print goes to the log file. After Ctrl-C the sentence `when_stopped` is said, and the
    process exits with 130; after SIGTERM with 143. Raises `NotPossibleError` when there is no Java, and
    `UnexpectedError` for what nobody thought of, its trace in the log file.
    """
    from runtime.spark.java import JAVA_MISSING, find_java
    from runtime.spark.session import build_session, connect_session, is_remote, unless_gone

    if not is_remote(master) and find_java() is None:
        raise NotPossibleError(JAVA_MISSING)
    progress = StepProgress(notes(), keep_steps=keep_steps)
    try:
        log = prepare_log(log_file)
        with _told_to_end(), _never_ignored(), logging_to(log), traced(log), progress:
            progress.step("Connecting to Spark" if is_remote(master) else "Starting Spark")
            with _own_interrupts():
                if is_remote(master):
                    spark = connect_session(master)
                else:
                    spark = build_session(master, log_file=log, settings=settings)
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
    except KeyboardInterrupt as interrupt:
        Screen().note(when_stopped)
        raise typer.Exit(TERMINATED if isinstance(interrupt, _TerminatedError) else INTERRUPTED) from None


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


def _terminate(*_: object) -> None:
    raise _TerminatedError


def _told_to_end() -> AbstractContextManager[None]:
    """Let SIGTERM end what is in the block in good order, where the process would be gone at once."""
    return _handling(signal.SIGTERM, _terminate)


def _own_interrupts() -> AbstractContextManager[None]:
    """Keep Ctrl-C as it is: PySpark's own handler calls into the JVM while a call is under way, and fails."""
    return _handling(signal.SIGINT, signal.getsignal(signal.SIGINT))


@contextmanager
def _handling(number: signal.Signals, handler: Any) -> Iterator[None]:  # noqa: ANN401 - a handler of Python or of C
    """Handle a signal so within the block, and afterwards as before it; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def _never_ignored() -> Iterator[None]:
    """Raise an interrupt again that came while Python was freeing an object, where it passes nothing on.

    Py4J frees its objects so, thousands in a batch: each is a moment in which Ctrl-C would be lost.
    """
    hook = sys.unraisablehook

    def again(ignored: sys.UnraisableHookArgs) -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            number = signal.SIGTERM if issubclass(ignored.exc_type, _TerminatedError) else signal.SIGINT
            threading.Timer(0.05, os.kill, (os.getpid(), number)).start()  # by then the object is freed
        else:
            hook(ignored)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = hook


# How Spark is started for little work: Java would spend most of it on compiling for a long life.

SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Halves the processor time of Java where there are a hundred thousand messages or fewer."""

SMALL_BYTES = 16 * 2**20
"""A log of so many bytes: 60,000 messages of the sample as JSON lines, 190,000 as Parquet."""

_CHOSEN_BY_USER = (
    "JDK_JAVA_OPTIONS",
    "JAVA_TOOL_OPTIONS",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "SPARK_SUBMIT_OPTS",
)


def settings_for(log_bytes: int | None) -> Mapping[str, str]:
    """Return the settings of a session that reads a log of so many bytes, None when that is not known.

    None of them where the environment says how Java is to be started.
    """
    is_small = log_bytes is not None and log_bytes <= SMALL_BYTES
    return SHORT_LIVED if is_small and not any(map(os.environ.get, _CHOSEN_BY_USER)) else {}
