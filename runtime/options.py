"""Options are declared once: as the fields of the dataclasses that the Python API takes.

A field that `option` makes carries its default and one line of help. `runtime.cli.options` makes an option of the
command line of it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import MISSING, field, fields
from difflib import get_close_matches
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from eventstore.connect import resolve_reference
from runtime.errors import UsageError

T = TypeVar("T")

OWN_DETAILS = frozenset({"name", "parse", "group", "is_rare", "check"})
"""Details of an option that typer does not know."""


def option(text: str, *, default: Any = MISSING, is_secret: bool = False, **details: Any) -> Any:  # noqa: ANN401
    """Return the field of a dataclass that the command line takes too; without a default it must be given.

    `text` is its help. The details are those of `typer.Option`, and `OWN_DETAILS`:

    - `name` where the option is not named like the field;
    - `parse="duration"` for an `int` of microseconds, and `parse="size"` for one of bytes;
    - `group`, the table of the project file that may hold it, empty for its top level. The default is the attribute
      `GROUP` of the dataclass, without which, or with None, the command line alone has the option;
    - `check`, which raises an error for a value of the project file that cannot be;
    - `is_rare`, for an option that `--help` leaves to `--help-all`, by default one in a table of the project file.
    """
    if details.get("parse") == "size":
        details.setdefault("metavar", "SIZE")
    metadata = {"help": text, **details}
    if default is dict:
        return field(default_factory=dict, repr=not is_secret, metadata=metadata)
    return field(default=default, repr=not is_secret, metadata=metadata)


def option_of(kind: Any, name: str, **changed: Any) -> Any:  # noqa: ANN401 - a dataclass, and a field like its own
    """Return a field that is declared as in a dataclass, but for the details that are given."""
    known = kind.__dataclass_fields__[name]
    default = changed.pop("default", known.default)
    return field(default=default, repr=known.repr, metadata={**known.metadata, **changed})


def check_fields(options: Any) -> None:  # noqa: ANN401 - a dataclass of options
    """Raise `UsageError` for a field of a dataclass that is not of its declared type, or out of its range."""
    hints = _hints(cast("Hashable", type(options)))
    for each in fields(options):
        value, hint = getattr(options, each.name), hints[each.name]
        if value is not each.default and not _fits(value, hint):
            what = " or ".join(map(_written, get_args(hint) if _is_union(hint) else (hint,)))
            shown = f", not {value!r}" if each.repr else ""  # or it may be a secret
            raise UsageError(f"The option {each.name} is {what}{shown}.")
        least, most = each.metadata.get("min"), each.metadata.get("max")
        if value is not None and least is not None and value < least:
            raise UsageError(f"The option {each.name} is {least} at least, not {value}.")
        if value is not None and most is not None and value > most:
            raise UsageError(f"The option {each.name} is {most} at most, not {value}.")


@cache
def _hints(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a type
    return get_type_hints(kind)


def _is_union(hint: Any) -> bool:  # noqa: ANN401 - a type
    return get_origin(hint) in (Union, UnionType)


def _fits(value: object, hint: Any) -> bool:  # noqa: ANN401 - a type
    """Return whether a value has a type as it is written."""
    origin, args = get_origin(hint), get_args(hint)
    if _is_union(hint):
        return any(_fits(value, each) for each in args)
    if origin is Literal:
        return value in args
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(each, str) for pair in value.items() for each in pair)
    if origin in (Collection, Sequence):
        is_many = isinstance(value, Collection) and not isinstance(value, str)
        return is_many and all(_fits(each, args[0]) for each in cast("Collection[object]", value))
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return hint is Any or isinstance(value, origin or hint)


def _written(hint: Any) -> str:  # noqa: ANN401 - a type
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if get_origin(hint) in (Collection, Sequence):
        return "a list of names"
    return "None" if hint is NoneType else getattr(hint, "__name__", str(hint))


def given(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return a dataclass made of keyword arguments. Raises `UsageError` for one that it has not."""
    known = [each.name for each in fields(cast("Any", kind))]
    for name in values.keys() - set(known):
        meant = get_close_matches(name, known, 1)
        hint = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(known)}."
        raise UsageError(f"There is no option {name}: {hint}")
    return kind(**values)


def resolved(text: str, holds: str = "") -> str:
    """Return the value that `env:NAME` or `file:PATH` names, and any other text unchanged. Raises `UsageError`."""
    return resolve_reference(text, holds, UsageError)
