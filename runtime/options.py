"""Options are declared once: as the fields of the dataclasses that the Python API takes.

A field that `option` makes carries its default and one line of help. `runtime.cli.options` makes an option of the
command line of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, field, fields
from difflib import get_close_matches
from typing import Any, TypeVar, cast

from runtime.errors import UsageError

T = TypeVar("T")


def option(text: str, *, default: Any = MISSING, is_secret: bool = False, **details: Any) -> Any:  # noqa: ANN401
    """Return the field of a dataclass that the command line takes too; without a default it must be given.

    `text` is its help. The details are those of `typer.Option`, `name` where the option is not named like the field,
    `parse="duration"` for an `int` of microseconds, and `parse="size"` for one of bytes.
    """
    metadata = {"help": text, **details}
    if default is dict:
        return field(default_factory=dict, repr=not is_secret, metadata=metadata)
    return field(default=default, repr=not is_secret, metadata=metadata)


def given(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return a dataclass made of keyword arguments. Raises `UsageError` for one that it has not."""
    known = [each.name for each in fields(cast("Any", kind))]
    for name in values.keys() - set(known):
        meant = get_close_matches(name, known, 1)
        hint = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(known)}."
        raise UsageError(f"There is no option {name}: {hint}")
    return kind(**values)
