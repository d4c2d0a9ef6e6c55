"""Failures: one sentence on standard error, and an exit code.

RuntimeFailure
├── NotPossibleError   what was asked for in the right way cannot be done
└── UnexpectedError    nobody thought of this; the trace is in the log file

| exit code | when |
|---|---|
| 0 | done; a batch with dead letters is done too |
| 1 | failed: no such log, batch or stream, a batch that is refused, a job that stopped, streams that cannot be read |
| 2 | usage error: an app, option, duration, store url or table name that cannot be, or options at odds |
| 3 | a batch has more dead letters than `--max-dead-letters`, or a target refuses outputs |
| 130 | Ctrl-C |
| 143 | SIGTERM |
"""

from __future__ import annotations

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
from runtime.versions.properties import Damaged, collecting

# The log file: what Spark prints, and the full traces of errors that nobody expected.

DEFAULT = Path(".consistent", "consistent.log")
"""In the working directory."""
LIMIT_BYTES = 10 * 2**20
"""A longer one is moved to a second file, which replaces the one before."""


def prepare_log(path: Path | None = None) -> Path:
    """Return the log file to use, its folder made. Raises `OSError` when it cannot be written."""
    chosen = path or DEFAULT
    chosen.parent.mkdir(parents=True, exist_ok=True)
    ignore = chosen.parent / ".gitignore"
    if path is None and not ignore.exists():
        ignore.write_text("# Nothing here belongs into version control.\n*\n", encoding="utf-8")
    if chosen.is_file() and chosen.stat().st_size > LIMIT_BYTES:
        chosen.replace(chosen.with_name(f"{chosen.name}.1"))
    chosen.open("ab").close()
    return chosen


def append_trace(error: BaseException, path: Path | None = None) -> Path | None:
    """Write the trace of an error to the log file and return the file, None when it cannot be written."""
    try:
        chosen = prepare_log(path)
        with chosen.open("a", encoding="utf-8") as log:
            log.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n")
            log.writelines(traceback.format_exception(error))
    except OSError:
        return None
    return chosen


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Let what Python's logging is told go to the log file, and not to the terminal."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


FAILED = 1
WRONG_USAGE = 2
TOO_MANY_DEAD_LETTERS = 3
INTERRUPTED = 130
TERMINATED = 143

_SHOWN = 10
_EXPECTED = (RuntimeFailure, EventStoreError, HandlersError)
_OF_TYPER = (typer.Exit, typer.Abort, typer.BadParameter)


class NotPossibleError(RuntimeFailure):
    """Raised when what was asked for in the right way cannot be done."""


class UnexpectedError(RuntimeFailure):
    """Raised in place of an error that nobody thought of; says where its trace is."""


@contextmanager
def answered() -> Iterator[None]:
    """Turn every error into one sentence and the exit of the process."""
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
    """Say which streams were left out, as they cannot be read."""
    for error in damaged.errors[:_SHOWN]:
        complain(f"stream_damaged: {error}")
    if damaged.count:
        complain(
            f"Left out, as they cannot be read: {damaged.count} streams or rows. All others were done. "
            f"`consistent check` looks through the whole table."
        )


@contextmanager
def traced(log_file: Path | None = None) -> Iterator[None]:
    """Write the traces of unexpected errors to the log file, and raise `UnexpectedError` in their place."""
    try:
        yield
    except (*_EXPECTED, *_OF_TYPER):
        raise
    except Exception as error:
        raise UnexpectedError(_sentence(error, append_trace(error, log_file))) from error


def exit_code(error: Exception) -> int:
    """Return 2 for a usage error, 3 for a batch that is held back, 1 for what is impossible."""
    if isinstance(error, BatchHeldBackError):
        return TOO_MANY_DEAD_LETTERS
    # Their subclasses tell of things that were not found or not allowed, not of how they were asked for.
    is_wrong_usage = type(error) in (UsageError, AppNotFoundError, StoreUrlError, TableNameError)
    return WRONG_USAGE if is_wrong_usage else FAILED


@contextmanager
def needing(what: str) -> Iterator[None]:
    """Say of a package that is not installed what needs it, and how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        command = "pip install 'consistent-messaging[spark]'"
        raise MissingExtraError(f"{what} {error.name}: {command}.") from error


def _sentence(error: Exception, trace: Path | None) -> str:
    where = f" The full trace is in {trace}." if trace else ""
    if "pyspark" in sys.modules:
        from runtime.spark.session import explain, is_of_spark

        if is_of_spark(error):
            return f"{explain(error)}{where}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}.{where}"
    return f"Something unexpected went wrong: {type(error).__name__}: {error}.{where}"
