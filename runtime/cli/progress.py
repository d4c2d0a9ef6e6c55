"""The progress of a command: on a terminal a bar, in a file a line for each step and ten seconds.

Spark's tasks are counted, or where a step knows them, streams.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from runtime.spark.sessions.progress import TaskWatch
    from runtime.spark.sessions.session import Session


LINE_EVERY_SECONDS = 10.0
_TASKS, _STREAMS = "tasks", "streams"


class StepProgress:
    """Shows one step of the work at a time: that it is under way, how many tasks are done, how long it took.

    Nothing is shown between `done` and the next `step`, so that results can be printed there. On a terminal, steps
    that are done stay to be read only with `keep_steps`.
    """

    def __init__(self, console: Console, *, keep_steps: bool = True) -> None:
        self._console = console
        self._keep_steps = keep_steps
        self._bar: Progress | None = None
        self._sentence = ""
        self._begun = 0.0
        self._said = 0.0
        self._tasks: TaskWatch | None = None
        self._unit = _TASKS

    def watch(self, spark: Session) -> None:
        """Count the tasks of a session from now on."""
        from runtime.spark.sessions.progress import TaskWatch

        self._tasks = TaskWatch(spark, self.show)

    def step(self, sentence: str) -> None:
        """End the step that is under way, and begin the next."""
        self.done()
        self._sentence, self._begun, self._unit = sentence, time.monotonic(), _TASKS
        self._said = self._begun
        if self._console.is_terminal:
            self._bar = _bar(self._console, sentence)
            self._bar.start()
        else:
            self._console.print(Text(sentence), soft_wrap=True)

    def show(self, done: int, total: int) -> None:
        """Show how many tasks are done, if a step is under way and has any, and knows nothing better to count."""
        if self._unit == _TASKS:
            self._show(done, total)

    def show_streams(self, done: int, total: int) -> None:
        """Show how many streams are done, and how many a second, in place of tasks."""
        self._unit = _STREAMS
        self._show(done, total)

    def _show(self, done: int, total: int) -> None:
        bar = self._bar
        if bar is not None and total:
            unit = f"{self._unit}{self._rate(done)}"
            bar.update(bar.task_ids[0], completed=done, total=total, unit=unit)
        elif not self._console.is_terminal and self._sentence and total:
            self._say(done, total)

    def done(self) -> None:
        """End the step that is under way, if there is one."""
        self._end(Text("✓ ", "green"), keep=self._keep_steps)

    def failed(self) -> None:
        """End the step that is under way as one that did not succeed."""
        self._end(Text("✗ ", "red"), keep=True)

    def close(self) -> None:
        """Count no more tasks. To be called before the session is stopped."""
        if self._tasks is not None:
            self._tasks.close()

    def _say(self, done: int, total: int) -> None:
        """Say how far the step is, if it is time for another line."""
        now = time.monotonic()
        if now - self._said < LINE_EVERY_SECONDS:
            return
        self._said = now
        seconds = now - self._begun
        left = f", about {seconds * (total - done) / done:.0f} s left" if done else ""
        count = f"{done:,} of {total:,} {self._unit}"
        line = f"{self._sentence}: {count} after {seconds:.0f} s{self._rate(done)}{left}"
        self._console.print(Text(line), soft_wrap=True)

    def _rate(self, done: int) -> str:
        """Return how many streams a second were done, as text; of tasks nothing, as they differ in size."""
        seconds = time.monotonic() - self._begun
        return f", {done / seconds:,.0f} a second" if self._unit == _STREAMS and done and seconds else ""

    def _end(self, mark: Text, *, keep: bool) -> None:
        bar, self._bar = self._bar, None
        sentence, self._sentence = self._sentence, ""
        if bar is None:
            return
        bar.stop()
        seconds = time.monotonic() - self._begun
        if keep:
            self._console.print(Text.assemble(mark, sentence, (f" ({seconds:.1f} s)", "dim")))


def _bar(console: Console, sentence: str) -> Progress:
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TaskProgressColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[unit]}", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task(sentence, total=None, unit=_TASKS)
    return bar
