"""Output of commands: results on standard output, everything else on standard error.

With `--json`, standard output is a single JSON document. Text is never interpreted as markup or as terminal commands.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Self

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.status import Status
from rich.table import Table
from rich.text import Text

from runtime.options import without_secrets
from runtime.telemetry import event, logs_json
from runtime.versions.readable import HIDDEN, HIDDEN_IN_LINE


def visible(text: str) -> str:
    """Replace control and invisible characters with Python escapes. Keeps line breaks."""
    return HIDDEN.sub(_escape, text)


def visible_line(text: str) -> str:
    """Replace control and invisible characters, including line breaks, with Python escapes."""
    return HIDDEN_IN_LINE.sub(_escape, text)


def indented(text: str) -> str:
    """Return escaped text with all lines but the first indented, so that no line looks like output of the program."""
    return visible(text).replace("\n", "\n  ")


def visible_json(document: Mapping[str, Any]) -> str:
    """Return JSON in which control and invisible characters are escaped. Times are ISO 8601 in UTC."""
    text = json.dumps(document, indent=2, ensure_ascii=False, default=_for_json)
    return HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1], text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


class _VisibleConsole(Console):
    """Escapes control characters in all text, including text that rich itself adds."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield segments with escaped text. rich's own control segments pass unchanged."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def results(*, to_stderr: bool = False) -> Console:
    """Return a console for standard output or error. In files and pipes, it wraps lines only if COLUMNS is set."""
    console = _VisibleConsole(stderr=to_stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 100_000
    return console


notes = partial(results, to_stderr=True)


@dataclass(frozen=True, slots=True)
class Screen:
    """Prints the output of a command, human-readable or, with `as_json`, as JSON."""

    as_json: bool = False

    def note(self, sentence: str, **fields: object) -> None:
        """Print a sentence to standard error. `fields` appear only in JSON logs."""
        _tell(notes(), sentence, Text(indented(sentence)), **fields)

    def show(self, *parts: RenderableType) -> None:
        """Print parts of the human-readable result. With `as_json`, print nothing.

        A `str` is a line to copy, and is not wrapped. A `Text` is prose, and is wrapped.
        """
        if self.as_json:
            return
        console = results()
        for part in parts:
            console.print(Text(part) if isinstance(part, str) else part, soft_wrap=isinstance(part, str))

    def put(self, document: Mapping[str, Any], *parts: RenderableType) -> None:
        """Print the result: `document` as JSON, or the human-readable `parts`."""
        if self.as_json:
            print(visible_json(document))
        self.show(*parts)


def complain(sentence: str) -> None:
    """Print an error to standard error, without secrets."""
    sentence = without_secrets(sentence)
    text = Text.assemble(("Error: ", "bold red"), (indented(sentence), "red"))
    _tell(notes(), sentence, text, level="error")


def _tell(console: Console, sentence: str, text: Text, **fields: object) -> None:
    """Print `text` or, if logs are JSON, one event with `sentence` and `fields`."""
    if logs_json():
        console.file.write(f"{event(sentence, **fields)}\n")
    else:
        console.print(text, soft_wrap=True)


_LINE_SECONDS = 10.0


class StepProgress:
    """Shows the current step with its counts and duration. As a context manager, ends the last step as done or failed.

    Shows nothing between `done` and the next `step`, so that results can be printed. On a terminal, finished steps stay
    visible only with `keep_steps`. In files and pipes, prints a line when a step begins, and its count at most every
    ten seconds.
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
        self.fields: Mapping[str, object] = {}  # added to events in JSON

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.done()
        else:
            self._end(Text("✗ ", "red"), keep=True)

    def step(self, sentence: str) -> None:
        """End the current step, and start the next one."""
        self.done()
        self._sentence, self._before = sentence, None
        self._begun = self._said = self._clock()
        if self._console.is_terminal and not logs_json():
            self._status = self._console.status(Text(sentence))
            self._status.start()
        else:
            _tell(self._console, sentence, Text(sentence), **self.fields)

    def show_outputs(self, done: int, total: int | None) -> None:
        """Show the number of outputs sent."""
        self.show_count(done, "outputs", total)

    def show_rows(self, step: str, rows: int) -> None:
        """Show the number of rows done. Starts `step` unless that is the current step."""
        if step != self._sentence:
            self.step(step)
        self.show_count(rows, "rows")

    def show_count(self, done: int, unit: str, total: int | None = None) -> None:
        """Show the units done in the step, their total if known, and the rate since the first call for the step."""
        if not self._sentence:
            return
        now = self._clock()
        if self._before is None:  # the rate excludes work of earlier runs
            self._before, self._begun = done, now
        seconds = now - self._begun
        rate = f", {(done - self._before) / seconds:,.0f} a second" if seconds and done > self._before else ""
        of = "" if total is None else f" of {total:,}"
        line = Text(f"{self._sentence}: {done:,}{of} {unit}{rate}")
        if self._status is not None:
            self._status.update(line)
        elif now - self._said >= _LINE_SECONDS:
            self._said = now
            _tell(self._console, line.plain, line, **self.fields)

    def done(self) -> None:
        """End the current step as successful."""
        self._end(Text("✓ ", "green"), keep=self._keep_steps)

    def _end(self, mark: Text, *, keep: bool) -> None:
        status, self._status = self._status, None
        sentence, self._sentence = self._sentence, ""
        if status is None:
            return
        status.stop()
        if keep:
            seconds = f" ({self._clock() - self._begun:.1f} s)"
            self._console.print(Text.assemble(mark, sentence, (seconds, "dim")))


_LOOK: dict[str, Any] = {"show_edge": False, "pad_edge": False, "padding": (0, 1, 0, 0)}

Parts = Iterator[RenderableType]  # of a human-readable result
Cell = str | int | datetime | Text | None
Row = Sequence[Cell] | Mapping[str, Any]

_HEADINGS = {"batch_id": "batch", "message_id": "message", "started_at": "started", "updated_at": "updated"}


def make_table(title: str, columns: Sequence[str] | Mapping[str, str], rows: Iterable[Row]) -> RenderableType:
    """Return a table with a title. Numbers are right-aligned.

    Each row is a sequence of cells, or a mapping with the keys of `--json`. For mappings, `columns` has the keys to
    show, and may map them to headings.
    """
    cells = [[row[name] for name in columns] if isinstance(row, Mapping) else row for row in rows]
    table = Table(box=box.SIMPLE_HEAD, **_LOOK)
    headings = columns.values() if isinstance(columns, Mapping) else columns
    for number, heading in enumerate(headings):
        are_numbers = any(isinstance(row[number], int) for row in cells)
        justify: Any = "right" if are_numbers else "left"
        text = _HEADINGS.get(heading, heading).replace("_", " ")
        table.add_column(Text(text), justify=justify, overflow="fold")
    for row in cells:
        table.add_row(*map(_cell, row))
    return Group(Text(visible_line(title), style="bold"), table)


def make_facts(title: str, facts: Iterable[tuple[str, Cell]]) -> RenderableType:
    """Return a title with a table of names and values below it."""
    table = Table(box=None, show_header=False, **_LOOK)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(Text(visible_line(name)), _cell(value))
    return Group(Text(visible_line(title), style="bold"), table)


def _cell(value: Cell) -> Text:
    if value is None:
        return Text("-", style="dim")
    if isinstance(value, Text):
        return value
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, datetime):
        return Text(value.isoformat(" ", "milliseconds").removesuffix("+00:00"))
    return Text(f"{value:,}" if isinstance(value, int) else visible_line(value))


def iso(time: datetime) -> str:
    """Format a UTC time as ISO 8601."""
    return time.isoformat().replace("+00:00", "Z")


def _for_json(value: object) -> str:
    return iso(value) if isinstance(value, datetime) else str(value)


def compact_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Format JSON on one line. Times are ISO 8601 in UTC."""
    return json.dumps(value, ensure_ascii=False, default=_for_json)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the right form: 1 run, 2 runs, 2 deliveries."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}{'es' if noun.endswith('ch') else 's'}"
    return f"{number:,} {plural}"
