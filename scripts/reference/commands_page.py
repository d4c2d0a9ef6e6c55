"""The page on the command line: the help of each command at 80 columns, from the application itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from runtime.cli.application import application
from runtime.cli.options import SHOW_ALL
from scripts.reference.markdown import page

_INTRODUCTION = """\
The help of every command, for a terminal of 80 columns. Durations are a number and a unit: `90s`, `30m`, `24h`, `7d`,
`2w`. [The command line](../cli.md) lists exit codes, [JSON output](json.md) the documents that `--json` prints, and
[Operations](../operations.md) the tasks.
"""


def write() -> str:
    """Return the page."""
    return page("Commands", _INTRODUCTION, *(f"## {name}\n\n```text\n{text}\n```" for name, text in helps()))


def helps(command: Any = None, above: Any = None, name: str = "consistent") -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """Yield the name of each command, groups before their commands, and its help at 80 columns."""
    command = command or typer.main.get_command(application)
    of = {"terminal_width": 80, "max_content_width": 80, "resilient_parsing": True}
    context = command.make_context(name, [], above, **of)
    context.meta[SHOW_ALL] = True
    yield context.command_path, command.get_help(context).rstrip()
    for each, below in getattr(command, "commands", {}).items():
        yield from helps(below, context, each)
