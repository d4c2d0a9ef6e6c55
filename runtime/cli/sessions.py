"""Spark sessions of commands: started with a word to the user, quiet, and ended well whatever happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from runtime.cli.console import Screen, notes
from runtime.cli.failures import INTERRUPTED, NotPossibleError, traced
from runtime.cli.log_file import logging_to, prepare_log

if TYPE_CHECKING:
    from runtime.spark.progress import ShownSession


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

    After Ctrl-C the sentence `when_stopped` is said, and the process exits with 130. Raises `NotPossibleError`
    when there is no Java, and `UnexpectedError` for what nobody thought of, its trace in the log file.
    """
    from runtime.spark.java import JAVA_MISSING, find_java
    from runtime.spark.progress import shown_session

    if find_java() is None:
        raise NotPossibleError(JAVA_MISSING)
    try:
        log = prepare_log(log_file)
        session = shown_session(master, log, notes(), keep_steps=keep_steps, settings=settings)
        with logging_to(log), traced(log), session as shown:
            yield shown
    except KeyboardInterrupt:
        Screen().note(when_stopped)
        raise typer.Exit(INTERRUPTED) from None
