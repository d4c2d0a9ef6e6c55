"""The progress of a command: on a terminal a bar, in a file a line for each step and ten seconds.

A step that knows its messages or streams says how many of them workers have done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from runtime.cli.reports.tables import counted
from runtime.cli.visible import visible_line

if TYPE_CHECKING:
    from runtime.spark.counts import Done

LINE_EVERY_SECONDS = 10.0


class StepProgress:
    """Shows one step of the work at a time: that it is under way, how far it is, how long it took.

    Nothing is shown between `done` and the next `step`, so that results can be printed there. On a terminal, steps
    that are done stay to be read only with `keep_steps`.
    """

    def __init__(
        self, console: Console, *, keep_steps: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._keep_steps = keep_steps
        self._clock = clock
        self._bar: Progress | None = None
        self._sentence = ""
        self._begun = 0.0
        self._said = 0.0
        self._is_counting = False
        self._since = (0.0, 0)

    def step(self, sentence: str) -> None:
        """End the step that is under way, and begin the next."""
        self.done()
        self._sentence, self._is_counting = sentence, False
        self._begun = self._said = self._clock()
        self._since = (self._begun, 0)
        if self._console.is_terminal:
            self._bar = _bar(self._console, sentence)
            self._bar.start()
        else:
            self._console.print(Text(sentence), soft_wrap=True)

    def show_streams(self, done: int, total: int) -> None:
        """Show how many streams are done, and how many a second."""
        if total:
            self._show(done, total, "streams", self._rate(done))

    def show_messages(self, done: Done) -> None:
        """Show how many messages are done, in how many streams and how many a second.

        Of a sweep, which finds messages as it goes, how many entities are done.
        """
        if done.of_streams is not None:
            self._show(done.streams, done.of_streams, "entities", self._rate(done.streams))
            return
        # Messages come when the log is shuffled, and their rate is that of the time after.
        self._count_from(done.messages)
        streams = f" in {counted(done.streams, 'stream')}" if done.streams else ""
        slow = f", at work on {visible_line(done.slow)}" if done.slow else ""
        self._show(done.messages, done.of, f"messages{streams}{slow}", self._rate(done.messages))

    def show_outputs(self, done: int, total: int | None) -> None:
        """Show how many outputs are sent, of how many if that is known, and how many a second."""
        self._count_from(done)  # what was sent before took no time now
        self._show(done, total, "outputs", self._rate(done))

    def show_count(self, done: int, unit: str) -> None:
        """Show how many are done, of a number that nobody knows, and how many a second."""
        self._show(done, None, unit, self._rate(done))

    def _count_from(self, done: int) -> None:
        """Let rates be those since the first count of the step."""
        if not self._is_counting:
            self._is_counting, self._since = True, (self._clock(), done)

    def _show(self, done: int, total: int | None, unit: str, rate: str = "") -> None:
        if not self._sentence:
            return
        left = self._left(done, total)
        if self._bar is not None:
            of = "" if total is None else f"/{total:,}"
            count = f"{done:,}{of} {unit}{rate}{left}"
            self._bar.update(self._bar.task_ids[0], completed=done, total=total, count=count)
        elif self._clock() - self._said >= LINE_EVERY_SECONDS:
            self._said = self._clock()
            of = "" if total is None else f" of {total:,}"
            line = f"{self._sentence}: {done:,}{of} {unit} after {self._seconds:.0f} s{rate}{left}"
            self._console.print(Text(line), soft_wrap=True)

    def done(self) -> None:
        """End the step that is under way, if there is one."""
        self._end(Text("✓ ", "green"), keep=self._keep_steps)

    def failed(self) -> None:
        """End the step that is under way as one that did not succeed."""
        self._end(Text("✗ ", "red"), keep=True)

    @property
    def _seconds(self) -> float:
        """How long the step is under way."""
        return self._clock() - self._begun

    def _a_second(self, done: int) -> float | None:
        """Return how many are done in a second, None while that cannot be told."""
        since, before = self._since
        seconds = self._clock() - since
        return (done - before) / seconds if done > before and seconds > 0 else None

    def _rate(self, done: int) -> str:
        rate = self._a_second(done)
        return "" if rate is None else f", {rate:,.0f} a second"

    def _left(self, done: int, total: int | None) -> str:
        """Return how long the rest takes if it goes on like this."""
        rate = self._a_second(done)
        if rate is None or total is None or done >= total:
            return ""
        return f", about {(total - done) / rate:,.0f} s left"

    def _end(self, mark: Text, *, keep: bool) -> None:
        bar, self._bar = self._bar, None
        sentence, self._sentence = self._sentence, ""
        if bar is None:
            return
        bar.stop()
        seconds = self._seconds
        if keep:
            self._console.print(Text.assemble(mark, sentence, (f" ({seconds:.1f} s)", "dim")))


def _bar(console: Console, sentence: str) -> Progress:
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task(sentence, total=None, count="")
    return bar
