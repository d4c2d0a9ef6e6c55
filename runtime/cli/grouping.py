"""Groups of options: a dataclass whose fields are options is one parameter of each command that takes them all."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from runtime.cli.durations import duration_text, parse_duration

Command = Callable[..., None]


class _Option(NamedTuple):
    """An option as a parameter of a function, and in how many groups it is."""

    parameter: inspect.Parameter
    depth: int


def with_groups(command: Command) -> Command:
    """Return a command as typer reads it: an option in place of each field of its groups, which may hold groups.

    Arguments come first, then options that must be given; those of groups within groups come last.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    if not groups:
        return command

    @functools.wraps(command)
    def flat(**given: Any) -> None:  # noqa: ANN401 - of any type, as options are
        command(**{name: _make(groups[name], given) for name in groups}, **given)

    options = list(_options(inspect.signature(command).parameters.values(), hints))
    options.sort(
        key=lambda option: (
            option.parameter.kind,
            option.parameter.default is not inspect.Parameter.empty,
            option.depth > 1,
        )
    )
    parameters = [option.parameter for option in options]
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # read by `inspect.signature`
    flat.__annotations__ = {each.name: each.annotation for each in parameters}
    return flat


def _options(
    parameters: Iterable[inspect.Parameter], hints: dict[str, Any], depth: int = 0
) -> Iterator[_Option]:
    for parameter in parameters:
        hint = hints[parameter.name]
        if is_dataclass(hint):
            hints_of_group = get_type_hints(hint, include_extras=True)
            declared = {each.name: _annotated(each, hints_of_group) for each in fields(hint) if each.metadata}
            found = map(_parameter, fields(hint))
            yield from _options(found, hints_of_group | declared, depth + 1)
        else:
            yield _Option(parameter.replace(annotation=hint), depth)


def _parameter(field: Field[Any]) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    if field.metadata.get("parse") == "duration" and isinstance(default, int):
        default = duration_text(default)  # parsed like what is typed
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default)


def _annotated(field: Field[Any], hints: dict[str, Any]) -> Any:  # noqa: ANN401 - a type
    """Return the option of a field that is declared by `option`, outside of the command line."""
    details = dict(field.metadata)
    parser = parse_duration if details.pop("parse", None) == "duration" else None
    name = f"--{field.name.replace('_', '-')}"
    return Annotated[hints[field.name], typer.Option(name, parser=parser, **details)]


def _make(group: Any, given: dict[str, Any]) -> Any:  # noqa: ANN401 - any dataclass
    """Take what a group has out of what was given."""
    hints = get_type_hints(group)
    values = {
        field.name: _make(hints[field.name], given)
        if is_dataclass(hints[field.name])
        else given.pop(field.name)
        for field in fields(group)
    }
    return group(**values)
