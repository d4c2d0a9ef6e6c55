"""Options of the command line, project file and Python API, declared as dataclass fields with a default and a help."""

import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import MISSING, field, fields
from difflib import get_close_matches
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from eventstore.connect import resolve_reference
from runtime.errors import UsageError

T = TypeVar("T")

OWN_DETAILS = frozenset({"name", "parse", "group", "is_rare", "check"})  # details unknown to typer
REQUIRED = MISSING


def option(text: str, *, default: Any = None, is_secret: bool = False, **details: Any) -> Any:  # noqa: ANN401
    """Declare a dataclass field that is also a command-line option. The default may be `REQUIRED`.

    `text` is the help. `details` are arguments of `typer.Option`, or:

    - `name`: the option's name, if it differs from the field;
    - `parse`: `"duration"` for an `int` in microseconds, `"size"` for an `int` in bytes;
    - `group`: the table of the project file: empty for the top level, None for an option of the command line only. By
      default it is the attribute `GROUP` of the dataclass;
    - `check`: a function that raises an error for an invalid value in the project file;
    - `is_rare`: list the option in `--help-all` only. The default is True if the option is in a table.
    """
    if "parse" in details:
        details.setdefault("metavar", {"size": "SIZE", "duration": "AGE"}[details["parse"]])
    for other, kind in (("dir_okay", "FILE"), ("file_okay", "DIR")):
        if other in details:
            details.setdefault("metavar", kind)
    metadata = {"help": text, **details}
    if default is dict:
        return field(default_factory=dict, repr=not is_secret, metadata=metadata)
    return field(default=default, repr=not is_secret, metadata=metadata)


def flag(text: str, **details: Any) -> Any:  # noqa: ANN401 - a field
    """Declare an option that is False by default."""
    return option(text, default=False, **details)


def option_of(kind: Any, name: str, **changed: Any) -> Any:  # noqa: ANN401 - a dataclass, and a field like its own
    """Return a copy of the option `name` of a dataclass. `changed` are arguments of `option` to replace."""
    known = kind.__dataclass_fields__[name]
    default = changed.pop("default", known.default)
    return field(default=default, repr=known.repr, metadata={**known.metadata, **changed})


def check_fields(options: Any) -> None:  # noqa: ANN401 - a dataclass of options
    """Raise `UsageError` for a field of the wrong type or out of range."""
    hints = _hints(cast("Hashable", type(options)))
    for each in fields(options):
        value, hint = getattr(options, each.name), hints[each.name]
        if value is not each.default and not _fits(value, hint):
            expected = " or ".join(map(_written, get_args(hint) if _is_union(hint) else (hint,)))
            shown = f", not {value!r}" if each.repr else ""  # a field without repr may be a secret
            raise UsageError(f"The option {each.name} must be {expected}{shown}.")
        least, most = each.metadata.get("min"), each.metadata.get("max")
        if value is not None and least is not None and value < least:
            raise UsageError(f"The option {each.name} must be at least {least}, not {value}.")
        if value is not None and most is not None and value > most:
            raise UsageError(f"The option {each.name} must be at most {most}, not {value}.")


@cache
def _hints(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a type
    return get_type_hints(kind)


def _is_union(hint: Any) -> bool:  # noqa: ANN401 - a type
    return get_origin(hint) in (Union, UnionType)


def _fits(value: object, hint: Any) -> bool:  # noqa: ANN401 - a type
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
    """Create an instance of a dataclass from its arguments by name. Raises `UsageError` for an unknown name."""
    known = [each.name for each in fields(cast("Any", kind))]
    for name in values.keys() - set(known):
        meant = get_close_matches(name, known, 1)
        hint = f"did you mean {meant[0]}?" if meant else f"use one of {', '.join(known)}."
        raise UsageError(f"There is no option {name}: {hint}")
    return kind(**values)


def resolved(text: str, holds: str = "") -> str:
    """Return the value behind `env:NAME` or `file:PATH`, or any other text unchanged.

    Raises `UsageError` if there is no value. In the message, `holds` follows the name of the variable or file.
    """
    return resolve_reference(text, holds, UsageError)


# Secrets in text: on pages of the explorer, in shown commands and configurations.

_PASSWORD_OF_URL = re.compile(r"(://[^/\s:@]*:)(?!\d*(?:[/?#\s]|$))(?:\S{0,999}|[^@]{0,99})@")
_NAME = (
    r"(?:(?<![a-z0-9])sig|authorization|cookie|secret|passw(?:or)?d|pwd|token|credentials?|signature|\.key|"
    r"account\.key[\w.-]{0,99}|(?:access|account|api|private|shared)[-_.]?key)"
)
_QUOTED = r"""(?:"(?:[^"\\]|\\.)*(?:"|$)|'(?:[^'\\]|\\.|'')*(?:'|$)|\{[^}]*\})[^\s;&,})\]]*"""
_NAMED_SECRET = re.compile(
    rf"""({_NAME}["']?\s*(?:=\s*|:\s+|:(?=["'])))(?!env:|file:|\s|$)"""
    rf"(?:{_QUOTED}|[^;&\n]{{1,999}}(?=;)|(?:(?:basic|bearer)\s+)?[^\s;&]+)",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Replace passwords in URLs, and values of names like `AccountKey`, by `...`. Keeps `env:NAME` and `file:PATH`."""
    return _NAMED_SECRET.sub(r"\1...", _PASSWORD_OF_URL.sub(r"\1...@", text))


def is_secret(word: str) -> bool:
    """Return whether a word contains a secret, rather than a reference such as `env:NAME`."""
    return without_secrets(word) != word
