"""A Spark session that shows on a console how far its work is.

On a terminal a bar counts the tasks of the stages that are under way; where the console is a file, each step is one
line. Asking for the tasks costs a few calls into the JVM four times a second, and nothing of the workers.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from runtime.spark.failures import SPARK_FAILURES
from runtime.spark.session import build_session

_EVERY_SECONDS = 0.25
_GONE = (*SPARK_FAILURES, OSError)


class StepProgress:
    """Shows one step of the work at a time: that it is under way, how many tasks are done, how long it took.

    Nothing is shown between `done` and the next `step`, so that results can be printed there. On a terminal, steps
    that are done stay to be read only with `keep_steps`.
    """

    def __init__(self, console: Console, *, keep_steps: bool = True) -> None:
        self._console = console
        self._keep_steps = keep_steps
        self._spark: SparkSession | None = None
        self._bar: Progress | None = None
        self._sentence = ""
        self._begun = 0.0
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="spark-progress", daemon=True)

    def watch(self, spark: SparkSession) -> None:
        """Count the tasks of a session from now on."""
        self._spark = spark
        if self._console.is_terminal:
            self._watcher.start()

    def step(self, sentence: str) -> None:
        """End the step that is under way, and begin the next."""
        self.done()
        self._sentence, self._begun = sentence, time.monotonic()
        if self._console.is_terminal:
            self._bar = _bar(self._console, sentence)
            self._bar.start()
        else:
            self._console.print(Text(sentence), soft_wrap=True)

    def done(self) -> None:
        """End the step that is under way, if there is one."""
        self._end(Text("✓ ", "green"), keep=self._keep_steps)

    def failed(self) -> None:
        """End the step that is under way as one that did not succeed."""
        self._end(Text("✗ ", "red"), keep=True)

    def close(self) -> None:
        """Count no more tasks. To be called before the session is stopped."""
        self._ended.set()
        if self._watcher.is_alive():
            self._watcher.join()

    def _end(self, mark: Text, *, keep: bool) -> None:
        bar, self._bar = self._bar, None
        if bar is None:
            return
        bar.stop()
        seconds = time.monotonic() - self._begun
        if keep:
            self._console.print(Text.assemble(mark, self._sentence, (f" ({seconds:.1f} s)", "dim")))

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            bar, spark = self._bar, self._spark
            if bar is None or spark is None:
                continue
            try:
                done, total = count_tasks(spark)
            except _GONE:
                return
            if total:
                bar.update(bar.task_ids[0], completed=done, total=total)


def count_tasks(spark: SparkSession) -> tuple[int, int]:
    """Return how many tasks of the stages under way are done, and how many there are."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


ShownSession = tuple[SparkSession, StepProgress]
"""A session, and what shows how far its work is."""


@contextmanager
def shown_session(
    master: str,
    log_file: Path,
    console: Console,
    *,
    keep_steps: bool = True,
    settings: Mapping[str, str] | None = None,
) -> Iterator[ShownSession]:
    """Start Spark, give the session with the progress of its work, and stop it.

    What Spark and its workers print goes to the log file. Raises `UsageError` when there is no Java.
    """
    progress = StepProgress(console, keep_steps=keep_steps)
    progress.step("Starting Spark")
    try:
        with _own_interrupts():
            spark = build_session(master, log_file=log_file, settings=settings)
        progress.watch(spark)
        try:
            yield spark, progress
        finally:
            progress.close()
            spark.stop()
    except BaseException:
        progress.failed()
        raise
    progress.done()


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


def _bar(console: Console, sentence: str) -> Progress:
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TaskProgressColumn("{task.completed:.0f}/{task.total:.0f} tasks", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task(sentence, total=None)
    return bar
