"""Spark sessions of commands: started with a word to the user, quiet, and ended well whatever happens."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from runtime.cli.console import Screen, StepProgress, notes
from runtime.cli.failures import INTERRUPTED, TERMINATED, NotPossibleError, logging_to, prepare_log, traced
from runtime.errors import UsageError

if TYPE_CHECKING:
    from runtime.spark.session import Session

    ShownSession = tuple[Session, StepProgress]
    """A session, and what shows how far its work is."""


# Where Spark works, as `--master` and `--remote` say it.

_FORMS = re.compile(
    r"local(\[\s*(\d+|\*)\s*(,\s*\d+\s*)?\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn",
)


_REMOTE = re.compile(r"sc://[^/]+(/.*)?")


def check_remote(url: str) -> None:
    """Raise `UsageError` for what is no url of Spark Connect."""
    if not _REMOTE.fullmatch(url):
        raise UsageError(f"{url!r} is no url of Spark Connect: write sc://HOST:PORT.")


def place_of_work(master: str | None, remote: str | None) -> str | None:
    """Return where Spark works, checked: a master, or the url of a server of Spark Connect; None where it does not.

    Raises `UsageError` for what is neither.
    """
    if remote is not None:
        check_remote(remote)
        return remote
    if master is not None:
        check_master(master)
    return master


def check_master(master: str) -> None:
    """Raise `UsageError` for what no Spark takes for a master."""
    if not _FORMS.fullmatch(master):
        raise UsageError(
            f"{master!r} is no master of Spark: write local[*], local[4], spark://HOST:PORT, yarn or k8s://URL."
        )


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
    from runtime.spark.java import JAVA_MISSING, find_java
    from runtime.spark.session import is_remote

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
    from runtime.spark.session import build_session, connect_session, is_remote, unless_gone

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
