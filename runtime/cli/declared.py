"""Options of commands that follow from the fields of a dataclass, each of which carries type, default and help.

A parameter `batch: Annotated[dict[str, Any], options_of(BatchOptions, "cascade", "guard")]` of a command stands for the
options `--cascade` and `--guard`, and is given as a dict of the values of these fields (`runtime.cli.grouping`).
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from dataclasses import Field, dataclass, fields
from datetime import timedelta
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from runtime.cli.durations import duration_text, parse_duration
from runtime.cli.sizes import parse_size, size_text


@dataclass(frozen=True)
class Declared:
    """Some of the fields of a dataclass, to be given on the command line."""

    of: type
    names: tuple[str, ...]

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield a parameter for each field, in the order of the fields."""
        hints = get_type_hints(self.of)
        for field in fields(self.of):
            if field.name in self.names:
                hint, default = _typed(field, hints[field.name])
                yield inspect.Parameter(
                    field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
                )


def options_of(of: type, *names: str) -> Declared:
    """Return what stands for some fields of a dataclass as options. Raises `TypeError` for what is no field."""
    unknown = set(names) - {field.name for field in fields(of)}
    if unknown:
        raise TypeError(f"{of.__name__} has no fields {unknown}.")
    return Declared(of, names)


def _typed(field: Field[Any], hint: Any) -> tuple[Any, Any]:  # noqa: ANN401 - types, and values of them
    """Return the annotation of an option as typer reads it, and its default."""
    more = dict(field.metadata)
    default: Any = field.default
    is_optional = NoneType in get_args(hint)
    kind = get_args(hint)[0] if is_optional else hint
    name, unit = more.pop("name", f"--{field.name.replace('_', '-')}"), more.pop("unit", None)
    if default is None:
        more.setdefault("show_default", False)
    if get_origin(kind) is Collection:
        kind, more["parser"] = str, _listed
    elif kind is timedelta:
        kind, more["parser"] = str, _duration
        default = duration_text(default // timedelta(microseconds=1))
    elif unit == "bytes":
        more["parser"], default = parse_size, size_text(default)
    return Annotated[kind | None if is_optional else kind, typer.Option(name, **more)], default


def _duration(text: str) -> timedelta:
    return timedelta(microseconds=parse_duration(text))


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",")]
