"""The pages on the command line: a list of commands, and the help of each at 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import typer.main

from runtime.cli.application import application
from runtime.cli.options import SHOW_ALL
from scripts.reference.markdown import code, page, table

_INTRODUCTION = """\
For users of the command line. [The command line](../../cli.md) lists exit codes, [JSON output](../json.md) documents
that `--json` prints. Durations are a number and a unit: `90s`, `30m`, `24h`, `7d`, `2w`.
"""
_OF_ONE = """\
[All commands](index.md), [exit codes](../../cli.md#exit-codes), and
[where the value of an option comes from](../../project.md#where-a-value-comes-from).
"""


def write() -> str:
    """Return the list of commands."""
    (_, (_, general)), *others = helps().items()
    rows = [[f"[{code(name)}]({_file(name)})", short] for name, (short, _) in others]
    return page(
        "Commands", _INTRODUCTION, table(["command", ""], rows), f"## consistent\n\n```text\n{general}\n```"
    )


def pages() -> Mapping[str, Callable[[], str]]:
    """Return the pages of the commands, by their names below reference/."""
    _, *commands = helps()
    return {
        "commands/index.md": write,
        **{f"commands/{_file(name)}": partial(_page, name) for name in commands},
    }


def _file(name: str) -> str:
    return f"{name.partition(' ')[2].replace(' ', '-')}.md"


def _page(name: str) -> str:
    _, text = helps()[name]
    return page(name, _OF_ONE, f"```text\n{text}\n```")


@cache
def helps() -> Mapping[str, tuple[str, str]]:
    """Return for each command the sentence on it, and its help at 80 columns; groups come before their commands."""
    return dict(_helps(typer.main.get_command(application), None, "consistent"))


def _helps(command: Any, above: Any, name: str) -> Iterator[tuple[str, tuple[str, str]]]:  # noqa: ANN401
    of = {"terminal_width": 80, "max_content_width": 80, "resilient_parsing": True}
    context = command.make_context(name, [], above, **of)
    context.meta[SHOW_ALL] = True
    yield context.command_path, (command.get_short_help_str(200), command.get_help(context).rstrip())
    for each, below in getattr(command, "commands", {}).items():
        yield from _helps(below, context, each)
