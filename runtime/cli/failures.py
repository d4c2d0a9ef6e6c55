"""Failures: one sentence on standard error, and an exit code.

RuntimeFailure
├── NotPossibleError   what was asked for in the right way cannot be done
└── UnexpectedError    nobody thought of this; the trace is in the log file

| exit code | when |
|---|---|
| 0 | done; a batch with dead letters is done too |
| 1 | failed: no such log, batch or stream, a batch that is refused, a job that stopped, streams that cannot be read |
| 2 | asked for wrongly: an app, option, duration, store url or table name that cannot be, or options at odds |
| 3 | a batch has more dead letters than `--max-dead-letters` |
| 130 | Ctrl-C |
| 143 | SIGTERM |
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from eventstore import EventStoreError, StoreUrlError, TableNameError
from handlers import HandlersError
from runtime.cli.console import complain
from runtime.cli.log_file import append_trace
from runtime.errors import AppNotFoundError, BatchHeldBackError, MissingExtraError, RuntimeFailure, UsageError
from runtime.storage.damage import Damaged, collecting

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
    """Return 2 for what was asked for wrongly, 3 for a batch that is held back, 1 for what is impossible."""
    if isinstance(error, BatchHeldBackError):
        return TOO_MANY_DEAD_LETTERS
    # Their subclasses tell of things that were not found or not allowed, not of how they were asked for.
    return (
        WRONG_USAGE
        if type(error) in (UsageError, AppNotFoundError, StoreUrlError, TableNameError)
        else FAILED
    )


def exports_need(error: ModuleNotFoundError) -> MissingExtraError:
    """Return the error that says what to install for reading and writing exports."""
    return MissingExtraError(f"Exports need {error.name}: pip install 'consistent-messaging[spark]'.")


def _sentence(error: Exception, trace: Path | None) -> str:
    where = f" The full trace is in {trace}." if trace else ""
    if "pyspark" in sys.modules:
        from runtime.spark.sessions.failures import explain, is_of_spark

        if is_of_spark(error):
            return f"{explain(error)}{where}"
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.strerror}: {error.filename}.{where}"
    return f"Something unexpected went wrong: {type(error).__name__}: {error}.{where}"
