"""What a command prints: results on standard output, everything else on standard error.

With `--json` standard output holds one JSON document and nothing else. Text is never taken for markup, so that an id
or an error may hold brackets.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.text import Text

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
        notes().print(Text(sentence), soft_wrap=True)

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
            print(json.dumps(document, indent=2, ensure_ascii=False))

    def put(self, report: Report) -> None:
        """Give or show a whole report."""
        if self.as_json:
            self.give(report.document())
        else:
            self.show(*report.parts())


def complain(sentence: str) -> None:
    """Say on standard error what went wrong."""
    notes().print(Text.assemble(("Error: ", "bold red"), (sentence, "red")), soft_wrap=True)


def _console(*, to_stderr: bool) -> Console:
    console = Console(stderr=to_stderr, highlight=False)
    if not console.is_terminal and _DEFAULT_WIDTH not in os.environ:
        console.width = _WIDTH_OF_A_FILE
    return console
