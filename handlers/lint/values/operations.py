"""Operations on values: joining what is possible, the members of collections, types and owners."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from handlers.lint.values.kinds import TEXT, Collection, Constant, Instance, Method, OneOf, Partial
from handlers.lint.values.value import UNKNOWN, Owner, Value

_MOST_OPTIONS = 8
_DEEPEST = 4
_SETS = ("set", "frozenset")
_VIEWS = ("keys", "items")


def options(value: Value) -> tuple[Value, ...]:
    """Return the possible values."""
    return value.options if isinstance(value, OneOf) else (value,)


def join(*values: Value) -> Value:
    """Return a value that may be any of those given; an unknown one adds nothing to known ones."""
    found = dict.fromkeys(option for value in values for option in options(value))
    known = [value for value in found if value not in (UNKNOWN, Constant(None))]
    if len(known) > 1:
        return OneOf(tuple(known[:_MOST_OPTIONS]))
    return known[0] if known else next(iter(found), UNKNOWN)


def owned(value: Value, owner: Owner | None) -> Value:
    """Return the value as one that belongs to the owner."""
    if isinstance(value, OneOf):
        return OneOf(tuple(owned(option, owner) for option in value.options))
    return value if owner is None or value.owner is owner else replace(value, owner=owner)


def fresh(value: Value) -> Value:
    """Return an unshared copy of the value."""
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
    """Return a collection; when it is nested too deeply, its members are unknown."""
    if _depth(element) >= _DEEPEST or any(_depth(part) >= _DEEPEST for part in (*parts, item or UNKNOWN)):
        element, item, parts = UNKNOWN, None, ()
    return Collection(kind, element, element if item is None else item, unordered or kind in _SETS, parts)


def row(*parts: Value) -> Collection:
    """Return a tuple of known members."""
    return collection("tuple", join(*parts) if parts else UNKNOWN, parts=parts)


def sets(value: Value) -> Iterator[Collection]:
    """Yield the sets that a value may be."""
    for option in options(value):
        if isinstance(option, Collection) and option.kind in _SETS:
            yield option


def is_unordered(value: Value) -> bool:
    """Return whether the order of iterating over a value may differ between processes."""
    return any(isinstance(option, Collection) and option.unordered for option in options(value))


def makes_set(value: Value) -> bool:
    """Return whether `&` and `|` of a value return a set: those of a dict's views do too."""
    return any(
        isinstance(option, Collection) and option.kind in (*_SETS, *_VIEWS) for option in options(value)
    )


def element_of(value: Value) -> Value:
    """Return what iterating over a value yields."""
    return join(*(_element(option) for option in options(value)))


def item_of(value: Value) -> Value:
    """Return what a subscript of a value returns."""
    return join(
        *(
            owned(option.item, option.owner) if isinstance(option, Collection) else Value(owner=option.owner)
            for option in options(value)
        )
    )


def is_float(value: Value) -> bool:
    """Return whether a value may be a float."""
    return any(type_name(option) == "builtins.float" for option in options(value))


def type_name(value: Value) -> str:
    """Return the full name of the value's type, empty when it is unknown or the user's."""
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
    if isinstance(value, Partial):
        return 1 + max(map(_depth, (value.function, *value.positional)))
    if isinstance(value, Method):
        return 1 + _depth(value.receiver)
    return 0
