"""Spark sessions of commands: quiet, with progress, and stopped properly whatever happens."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from runtime.cli.console import Screen, StepProgress, notes
from runtime.cli.failures import INTERRUPTED, TERMINATED, NotPossibleError, logging_to, prepare_log, traced
from runtime.errors import UsageError

if TYPE_CHECKING:
    from runtime.spark.session import Session

    ShownSession = tuple[Session, StepProgress]  # a session and its progress display


_MASTER = re.compile(r"local(\[\s*(\d+|\*)\s*(,\s*\d+\s*)?\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn")


def check_place(master: str | None, remote: str | None = None) -> None:
    """Raise `UsageError` for an invalid Spark master or Spark Connect URL."""
    if remote is not None and not re.fullmatch(r"sc://[^/]+(/.*)?", remote):
        raise UsageError(f"{remote!r} is not a Spark Connect URL: use sc://HOST:PORT.")
    if remote is None and master is not None and not _MASTER.fullmatch(master):
        forms = "local[*], local[4], spark://HOST:PORT, yarn or k8s://URL"
        raise UsageError(f"{master!r} is not a Spark master: use {forms}.")


@contextmanager
def working(
    master: str,
    log_file: Path | None,
    *,
    when_stopped: str,
    keep_steps: bool = True,
    settings: Mapping[str, str] | None = None,
) -> Iterator[ShownSession]:
    """Context manager that starts Spark, yields session and progress, and stops Spark.

    Output of Spark and its workers goes to the log file. Ctrl-C and SIGTERM print `when_stopped`, and exit with 130 and
    143. `keep_steps`: finished steps stay visible. `settings`: Spark settings, unused with Spark Connect. Raises
    `NotPossibleError` without Java, and `UnexpectedError` for unexpected errors.
    """
    from runtime.spark.java import JAVA_MISSING, find_java
    from runtime.spark.session import is_remote, unless_gone
    from runtime.spark.start import build_session, connect_session

    if not is_remote(master) and find_java() is None:
        raise NotPossibleError(JAVA_MISSING)
    progress = StepProgress(notes(), keep_steps=keep_steps)
    try:
        log = prepare_log(log_file)
        with _handling(signal.SIGTERM, _terminate), _never_ignored(), logging_to(log), traced(log), progress:
            progress.step("Connecting to Spark" if is_remote(master) else "Starting Spark")
            # PySpark's own handler calls into the JVM during another call, and fails.
            with _handling(signal.SIGINT, signal.getsignal(signal.SIGINT)):
                if is_remote(master):
                    spark = connect_session(master)
                else:
                    spark = build_session(master, log_file=log, settings=settings)
            try:
                yield spark, progress
            except BaseException as error:
                interrupt = _interrupt_behind(error)
                if interrupt is None:
                    raise
                raise interrupt from None
            finally:
                with unless_gone():  # an interrupted call has broken the connection to Spark
                    spark.stop()
    except KeyboardInterrupt as interrupt:
        Screen().note(when_stopped)
        raise typer.Exit(TERMINATED if isinstance(interrupt, _TerminatedError) else INTERRUPTED) from None


def _interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Return the interrupt that caused an error, or None. After Ctrl-C, PySpark may raise an error of its own."""
    seen: list[BaseException] = []
    while not isinstance(error, KeyboardInterrupt):
        seen.append(error)
        following = error.__cause__ or error.__context__
        if following is None or following in seen:
            return None
        error = following
    return error


class _TerminatedError(KeyboardInterrupt):
    """Raised in the main thread on SIGTERM, so that the command cleans up as after Ctrl-C."""


def _terminate(*_: object) -> None:
    raise _TerminatedError


@contextmanager
def _handling(number: signal.Signals, handler: Any) -> Iterator[None]:  # noqa: ANN401 - a handler in Python or C
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
    # Python discards exceptions in destructors, and Py4J runs thousands in a batch: send the interrupt again.
    hook = sys.unraisablehook

    def again(ignored: sys.UnraisableHookArgs) -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            number = signal.SIGTERM if issubclass(ignored.exc_type, _TerminatedError) else signal.SIGINT
            threading.Timer(0.05, os.kill, (os.getpid(), number)).start()  # after the destructor
        else:
            hook(ignored)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = hook


# Halves Java's CPU time for up to 100,000 messages, which end before optimised code pays off.
SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
# The size of a small log: 60,000 messages of the sample as JSON lines, 190,000 as Parquet.
SMALL_BYTES = 16 * 2**20
_CHOSEN_BY_USER = (
    "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_SUBMIT_OPTS",
)  # fmt: skip


def settings_for(log_bytes: int | None) -> Mapping[str, str]:
    """Return Spark settings that save CPU for a log of up to 16 MiB.

    Return {} for a larger log, for None (the size is unknown), or if an environment variable configures Java or Spark.
    """
    is_small = log_bytes is not None and log_bytes <= SMALL_BYTES
    return SHORT_LIVED if is_small and not any(map(os.environ.get, _CHOSEN_BY_USER)) else {}
