"""What a command prints: results on standard output, everything else on standard error.

With `--json` standard output holds one JSON document and nothing else. Text is never taken for markup, so that an id
or an error may hold brackets, nor for commands to the terminal.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from runtime.cli.visible import indented, visible, visible_json

_WIDTH_OF_A_FILE = 100_000
_DEFAULT_WIDTH = "COLUMNS"

Document = Mapping[str, Any]


class Report(Protocol):
    """A whole result, for machines and for people."""

    def document(self) -> Document:
        """Return it for JSON."""
        ...

    def parts(self) -> Iterable[RenderableType]:
        """Give the parts to be shown."""
        ...


def results() -> Console:
    """Return the console of standard output; in a file or a pipe no line is wrapped, and ids stay whole."""
    return _console(to_stderr=False)


def notes() -> Console:
    """Return the console of standard error."""
    return _console(to_stderr=True)


@dataclass(frozen=True, slots=True)
class Screen:
    """Where a command puts what it has to say, for people or, `as_json`, for machines."""

    as_json: bool = False

    def note(self, sentence: str) -> None:
        """Say on standard error how it goes."""
        notes().print(Text(indented(sentence)), soft_wrap=True)

    def show(self, *parts: RenderableType) -> None:
        """Show people parts of the result.

        A `str` is a line to be copied, and is not wrapped; a `Text` is one to be read, and is.
        """
        if self.as_json:
            return
        console = results()
        for part in parts:
            console.print(Text(part) if isinstance(part, str) else part, soft_wrap=isinstance(part, str))

    def give(self, document: Document) -> None:
        """Give machines the whole result."""
        if self.as_json:
            print(visible_json(document))

    def put(self, report: Report) -> None:
        """Give or show a whole report."""
        if self.as_json:
            self.give(report.document())
        else:
            self.show(*report.parts())


def complain(sentence: str) -> None:
    """Say on standard error what went wrong."""
    notes().print(Text.assemble(("Error: ", "bold red"), (indented(sentence), "red")), soft_wrap=True)


class _VisibleConsole(Console):
    """A console on which no text of others commands the terminal, whatever it is part of."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Give the segments of something to be printed, those that rich adds itself as they are."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def _console(*, to_stderr: bool) -> Console:
    console = _VisibleConsole(stderr=to_stderr, highlight=False)
    if not console.is_terminal and _DEFAULT_WIDTH not in os.environ:
        console.width = _WIDTH_OF_A_FILE
    return console
