"""Turns errors into one sentence on standard error and an exit code.

RuntimeFailure
├── NotPossibleError   a valid command that cannot be carried out
└── UnexpectedError    an unexpected exception, with its traceback in the log file

| exit code | when |
|---|---|
| 0 | success, even with dead letters |
| 1 | failure: a missing log, batch or stream, a rejected batch, a failed job, corrupt streams |
| 2 | usage error: an invalid app, option, duration, store URL or table name, or contradictory options |
| 3 | more dead letters than `--max-dead-letters`, more changes than `--max-changes`, or outputs rejected by a target |
| 130 | Ctrl-C |
| 143 | SIGTERM |
"""

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import typer

from eventstore import EventStoreError, StoreUrlError, TableNameError
from handlers import HandlersError
from runtime.cli.console import complain
from runtime.errors import AppNotFoundError, BatchHeldBackError, MissingExtraError, RuntimeFailure, UsageError
from runtime.options import without_secrets
from runtime.telemetry import Lines
from runtime.versions.properties import Damaged, collecting

# The log file for Spark's output and tracebacks, relative to the working directory.
DEFAULT = Path(".consistent", "consistent.log")
LIMIT_BYTES = 10 * 2**20  # a longer log file is renamed to `.1`, replacing an older one


def prepare_log(path: Path | None = None) -> Path:
    """Create the log file and its folder, and return the file's path. Raises `OSError` if that fails.

    A file over the size limit is renamed first. The default path is in the working directory.
    """
    chosen = path or DEFAULT
    chosen.parent.mkdir(parents=True, exist_ok=True)
    ignore = chosen.parent / ".gitignore"
    if path is None and not ignore.exists():
        ignore.write_text("# Nothing here belongs in version control.\n*\n", encoding="utf-8")
    if chosen.is_file() and chosen.stat().st_size > LIMIT_BYTES:
        chosen.replace(chosen.with_name(f"{chosen.name}.1"))
    chosen.open("ab").close()
    return chosen


def append_trace(error: BaseException, path: Path | None = None) -> Path | None:
    """Append a traceback to the log file, without secrets. Return the file, or `None` if it cannot be written."""
    try:
        chosen = prepare_log(path)
        with chosen.open("a", encoding="utf-8") as log:
            log.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n")
            log.write(without_secrets("".join(traceback.format_exception(error))))
    except OSError:
        return None
    return chosen


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Context manager that sends Python's logging to the log file instead of the terminal."""
    handler = logging.FileHandler(path)
    handler.setFormatter(Lines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


FAILED, WRONG_USAGE, TOO_MANY_DEAD_LETTERS, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143
_SHOWN = 10
_EXPECTED = (RuntimeFailure, EventStoreError, HandlersError)
_OF_TYPER = (typer.Exit, typer.Abort, typer.BadParameter)
# Exact types: subclasses are about missing or forbidden things, not about usage.
_OF_USAGE = (UsageError, AppNotFoundError, StoreUrlError, TableNameError)


class NotPossibleError(RuntimeFailure):
    """Raised when a valid command cannot be carried out."""


class UnexpectedError(RuntimeFailure):
    """Raised instead of an unexpected exception. The message names the log file with the traceback."""


@contextmanager
def answered() -> Iterator[None]:
    """Context manager that prints an error as one sentence, and raises `SystemExit` with the exit code of the error.

    Streams or rows that were skipped as corrupt are printed too, and turn exit code 0 into 1.
    """
    damaged = Damaged()
    try:
        with traced(), collecting(damaged):
            yield
    except _EXPECTED as error:
        _tell(damaged)
        complain(str(error))
        raise SystemExit(exit_code(error)) from error
    except SystemExit as end:
        _tell(damaged)
        if damaged.count and not end.code:
            raise SystemExit(FAILED) from end
        raise


def _tell(damaged: Damaged) -> None:
    for error in damaged.errors[:_SHOWN]:
        complain(f"stream_damaged: {error}")
    if damaged.count:
        complain(
            f"Skipped {damaged.count} corrupt streams or rows. All others were processed. `consistent check` examines "
            f"the whole table."
        )


@contextmanager
def traced(log_file: Path | None = None) -> Iterator[None]:
    """Context manager that logs the traceback of an unexpected error, and raises `UnexpectedError` instead."""
    try:
        yield
    except (*_EXPECTED, *_OF_TYPER):
        raise
    except Exception as error:
        raise UnexpectedError(_sentence(error, append_trace(error, log_file))) from error


def exit_code(error: Exception) -> int:
    """Return the exit code for an error: 3 for a batch held back by dead letters, 2 for wrong usage, otherwise 1."""
    if isinstance(error, BatchHeldBackError):
        return TOO_MANY_DEAD_LETTERS
    return WRONG_USAGE if type(error) in _OF_USAGE else FAILED


@contextmanager
def needing(what: str) -> Iterator[None]:
    """Context manager that raises `MissingExtraError` for a missing package. `what` is the start of the message."""
    try:
        yield
    except ModuleNotFoundError as error:
        command = "pip install 'consistent-messaging[spark]'"
        raise MissingExtraError(f"{what} {error.name}: {command}.") from error


def _sentence(error: Exception, trace: Path | None) -> str:
    where = f" The traceback is in {trace}." if trace else ""
    if "pyspark" in sys.modules:
        from runtime.spark.session import explain, is_of_spark

        if is_of_spark(error):
            return f"{explain(error)}{where}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}.{where}"
    return f"Unexpected error: {type(error).__name__}: {error}.{where}"
