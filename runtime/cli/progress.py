"""The progress of a command: a spinner on a terminal; in a file a line for each step, and every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

LINE_EVERY_SECONDS = 10.0


class StepProgress:
    """Shows one step of the work at a time: that it is under way, what it counts, and how long it took.

    Nothing is shown between `done` and the next `step`, so that results can be printed there. On a terminal, steps
    that are done stay to be read only with `keep_steps`. As a context manager it ends the last step.
    """

    def __init__(
        self, console: Console, *, keep_steps: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._keep_steps = keep_steps
        self._clock = clock
        self._status: Status | None = None
        self._sentence = ""
        self._begun = self._said = 0.0
        self._before: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(
            Text("✗ ", "red") if error else Text("✓ ", "green"), keep=error is not None or self._keep_steps
        )

    def step(self, sentence: str) -> None:
        """End the step that is under way, and begin the next."""
        self.done()
        self._sentence, self._before = sentence, None
        self._begun = self._said = self._clock()
        if self._console.is_terminal:
            self._status = self._console.status(Text(sentence))
            self._status.start()
        else:
            self._console.print(Text(sentence), soft_wrap=True)

    def show_outputs(self, done: int, total: int | None) -> None:
        """Show how many outputs are sent, of how many if that is known."""
        self.show_count(done, "outputs", total)

    def show_count(self, done: int, unit: str, total: int | None = None) -> None:
        """Show how many are done, of how many if that is known, and how many a second since the first call."""
        if not self._sentence:
            return
        now = self._clock()
        if self._before is None:  # what was done before took no time now
            self._before, self._begun = done, now
        seconds = now - self._begun
        rate = f", {(done - self._before) / seconds:,.0f} a second" if seconds and done > self._before else ""
        of = "" if total is None else f" of {total:,}"
        line = Text(f"{self._sentence}: {done:,}{of} {unit}{rate}")
        if self._status is not None:
            self._status.update(line)
        elif now - self._said >= LINE_EVERY_SECONDS:
            self._said = now
            self._console.print(line, soft_wrap=True)

    def show_rows(self, step: str, rows: int) -> None:
        """Show how many rows a step has done; another step ends the one before."""
        if step != self._sentence:
            self.step(step)
        self.show_count(rows, "rows")

    def done(self) -> None:
        """End the step that is under way, if there is one."""
        self._end(Text("✓ ", "green"), keep=self._keep_steps)

    def failed(self) -> None:
        """End the step that is under way as one that did not succeed."""
        self._end(Text("✗ ", "red"), keep=True)

    def _end(self, mark: Text, *, keep: bool) -> None:
        status, self._status = self._status, None
        sentence, self._sentence = self._sentence, ""
        if status is None:
            return
        status.stop()
        if keep:
            seconds = f" ({self._clock() - self._begun:.1f} s)"
            self._console.print(Text.assemble(mark, sentence, (seconds, "dim")))
