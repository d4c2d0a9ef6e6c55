"""The page on the command line: each command with its options, from the application itself."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from textwrap import dedent
from types import NoneType
from typing import Any, Literal

import typer
from typer.models import ArgumentInfo, OptionInfo

from runtime.cli.application import application
from scripts.reference.markdown import code, page, table

_INTRODUCTION = """\
Every command has `--help`. An option without a default can be left out unless it is said to be required. Durations
are a number and a unit: `90s`, `30m`, `24h`, `7d`, `2w`. [Operations](../operations.md) tells what the commands are
for, and lists the [exit codes](../operations.md#the-command-line).
"""


def write() -> str:
    """Return the page."""
    return page("Commands", _INTRODUCTION, *(_command(*found) for found in commands()))


def commands(
    app: typer.Typer = application, above: str = "consistent"
) -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Give each command: its name, the function that it calls, and its help."""
    for each in app.registered_commands:
        if each.callback:
            yield f"{above} {each.name}", each.callback, str(each.help)
    for group in app.registered_groups:
        if group.typer_instance:
            yield from commands(group.typer_instance, f"{above} {group.name}")


def _command(name: str, callback: Callable[..., Any], text: str) -> str:
    hints = typing.get_type_hints(callback, include_extras=True)
    parameters = inspect.signature(callback).parameters.values()
    rows = [_row(each, *found) for each in parameters if (found := typing.get_args(hints[each.name]))]
    parts = [f"## {name}", _help(text)]
    return "\n\n".join([*parts, table(["option", "takes", "default", ""], rows)] if rows else parts)


def _help(text: str) -> str:
    """Return the help of a command, with its examples in blocks."""
    return re.sub(
        r"^\x08\n((?: {4}.*\n?)+)", lambda found: f"```\n{dedent(found[1])}```\n", text, flags=re.MULTILINE
    )


def _row(parameter: inspect.Parameter, kind: Any, info: OptionInfo | ArgumentInfo) -> list[str]:  # noqa: ANN401
    return [code(_name(parameter, info)), _takes(kind, info), _default(parameter, info), info.help or ""]


def _name(parameter: inspect.Parameter, info: OptionInfo | ArgumentInfo) -> str:
    if isinstance(info, ArgumentInfo):
        return info.metavar or parameter.name.upper()
    # What is given first is the name, as the default is that of the parameter.
    given = [each for each in (info.default, *(info.param_decls or ())) if isinstance(each, str)]
    return ", ".join(given or [f"--{parameter.name.replace('_', '-')}"])


def _takes(kind: Any, info: OptionInfo | ArgumentInfo) -> str:  # noqa: ANN401 - a type expression
    kinds = [each for each in typing.get_args(kind) or [kind] if each is not NoneType]
    (first, *_) = kinds
    if isinstance(first, type) and issubclass(first, Enum):
        return ", ".join(code(each.value) for each in first)
    choices = [
        name
        for each in (kind, *kinds)
        if typing.get_origin(each) is Literal
        for name in typing.get_args(each)
    ]
    if choices:
        return ", ".join(map(code, choices))
    if first is bool or isinstance(info, ArgumentInfo):
        return ""
    limits = [f"at least {info.min}"] if info.min is not None else []
    return ", ".join([code(info.metavar or "N"), *limits])


def _default(parameter: inspect.Parameter, info: OptionInfo | ArgumentInfo) -> str:
    variables = f", or {code(info.envvar)} in the environment" if info.envvar else ""
    if isinstance(info.show_default, str):
        return info.show_default
    if parameter.default is inspect.Parameter.empty:
        return f"required{variables}"
    if parameter.default in (None, "") or isinstance(parameter.default, bool):
        return ""
    return code(parameter.default.value if isinstance(parameter.default, Enum) else parameter.default)
