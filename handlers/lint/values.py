"""What an expression may hold, as far as can be told without running it.

Where several things are possible all are kept, so that each is checked: a value is what *may* be there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from handlers.lint.definitions import ClassDefinition, FunctionDefinition
    from handlers.lint.modules import SourceModule

_MOST_OPTIONS = 8
_DEEPEST = 4
_SETS = ("set", "frozenset")
_VIEWS = ("keys", "items")


class Owner(Enum):
    """Whom a value belongs to, when it is not the call that is being made."""

    STATE = "state"
    MESSAGE = "message"
    MODULE = "module"
    CLASS = "class"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Value:
    """Anything; nothing more is known of it than who owns it."""

    owner: Owner | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Constant(Value):
    """A literal."""

    value: object


@dataclass(frozen=True, slots=True)
class Outside(Value):
    """A module, class or function that is not the user's, by its full name: `datetime.datetime.now`."""

    name: str


@dataclass(frozen=True, slots=True)
class Instance(Value):
    """An instance of a class that is not the user's, by the full name of the class."""

    of: str


@dataclass(frozen=True, slots=True)
class Package(Value):
    """A module of the user's."""

    module: SourceModule


@dataclass(frozen=True, slots=True)
class Class(Value):
    """A class of the user's."""

    definition: ClassDefinition


@dataclass(frozen=True, slots=True)
class Object(Value):
    """An instance of a class of the user's."""

    definition: ClassDefinition


@dataclass(frozen=True, slots=True)
class Super(Value):
    """What `super()` gives within a method: the bases of a class, for an object."""

    after: ClassDefinition
    bound: Value


@dataclass(frozen=True, slots=True)
class Function(Value):
    """A function, method or lambda of the user's, and what stands before its first argument."""

    definition: FunctionDefinition
    bound: Value | None = None


@dataclass(frozen=True, slots=True)
class Method(Value):
    """An attribute, most often a method, of something that is not the user's."""

    receiver: Value
    name: str


@dataclass(frozen=True, slots=True)
class Partial(Value):
    """A callable with its first arguments given."""

    function: Value
    positional: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Accessor(Value):
    """What `operator.attrgetter` and `methodcaller` give: takes an attribute of its argument, or calls it."""

    name: str
    calls: bool


@dataclass(frozen=True, slots=True)
class Collection(Value):
    """A list, tuple, set, frozenset, dict or iterator.

    `element` is what iterating over it gives, `item` what subscribing it gives; `parts` are the members of a
    tuple of known length.
    """

    kind: str
    element: Value = field(default_factory=Value)
    item: Value = field(default_factory=Value)
    unordered: bool = False
    parts: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class OneOf(Value):
    """One of several values."""

    options: tuple[Value, ...]


UNKNOWN = Value()
TEXT = Instance("builtins.str")
NUMBER = Instance("builtins.int")
FLOAT = Instance("builtins.float")

V = TypeVar("V", bound=Value)


def options(value: Value) -> tuple[Value, ...]:
    """Return the values that one may be."""
    return value.options if isinstance(value, OneOf) else (value,)


def join(*values: Value) -> Value:
    """Return a value that may be any of those given; what is unknown adds nothing to what is known."""
    found = dict.fromkeys(option for value in values for option in options(value))
    known = [value for value in found if value not in (UNKNOWN, Constant(None))]
    if len(known) > 1:
        return OneOf(tuple(known[:_MOST_OPTIONS]))
    return known[0] if known else next(iter(found), UNKNOWN)


def owned(value: Value, owner: Owner | None) -> Value:
    """Return the value as a part of what the owner has."""
    if isinstance(value, OneOf):
        return OneOf(tuple(owned(option, owner) for option in value.options))
    return value if owner is None or value.owner is owner else replace(value, owner=owner)


def fresh(value: Value) -> Value:
    """Return a copy of the value that nobody else has."""
    if isinstance(value, OneOf):
        return OneOf(tuple(map(fresh, value.options)))
    return replace(value, owner=None)


def collection(
    kind: str,
    element: Value = UNKNOWN,
    *,
    item: Value | None = None,
    unordered: bool = False,
    parts: tuple[Value, ...] = (),
) -> Collection:
    """Return a collection; of what is nested too deeply the members are unknown."""
    if _depth(element) >= _DEEPEST or any(_depth(part) >= _DEEPEST for part in (*parts, item or UNKNOWN)):
        element, item, parts = UNKNOWN, None, ()
    return Collection(kind, element, element if item is None else item, unordered or kind in _SETS, parts)


def row(*parts: Value) -> Collection:
    """Return a tuple of known members."""
    return collection("tuple", join(*parts) if parts else UNKNOWN, parts=parts)


def sets(value: Value) -> Iterator[Collection]:
    """Give the sets that a value may be."""
    for option in options(value):
        if isinstance(option, Collection) and option.kind in _SETS:
            yield option


def is_unordered(value: Value) -> bool:
    """Say whether iterating over a value may have another order in another process."""
    return any(isinstance(option, Collection) and option.unordered for option in options(value))


def makes_set(value: Value) -> bool:
    """Say whether `&` and `|` of a value give a set: so do the views of a dict."""
    return any(
        isinstance(option, Collection) and option.kind in (*_SETS, *_VIEWS) for option in options(value)
    )


def element_of(value: Value) -> Value:
    """Return what iterating over a value gives."""
    return join(*(_element(option) for option in options(value)))


def item_of(value: Value) -> Value:
    """Return what subscribing a value gives."""
    return join(
        *(
            owned(option.item, option.owner) if isinstance(option, Collection) else Value(owner=option.owner)
            for option in options(value)
        )
    )


def is_float(value: Value) -> bool:
    """Say whether a value may be a float."""
    return any(
        option_type == "builtins.float" for option_type in (type_name(option) for option in options(value))
    )


def type_name(value: Value) -> str:
    """Return the full name of the type of a value that is not of the user's, or nothing."""
    if isinstance(value, Instance):
        return value.of
    if isinstance(value, Constant):
        return f"builtins.{type(value.value).__name__}"
    if isinstance(value, Collection):
        return f"builtins.{value.kind}"
    return ""


def _element(value: Value) -> Value:
    if isinstance(value, Collection):
        return owned(value.element, value.owner)
    if type_name(value) == "builtins.str":
        return TEXT
    return Value(owner=value.owner)


def _depth(value: Value) -> int:
    if isinstance(value, OneOf):
        return max(map(_depth, value.options))
    if isinstance(value, Collection):
        return 1 + max(map(_depth, (value.element, value.item, *value.parts)))
    if isinstance(value, Partial | Method):
        return 1 + max(
            map(
                _depth,
                [value.function, *value.positional] if isinstance(value, Partial) else [value.receiver],
            )
        )
    return 0
