"""The properties of an event, a stream or an included row: unchangeable, and without the names that the store needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from eventstore.limits import check_types
from eventstore.port import Value

VERSION = "Version"
FIRST_VERSION = "FirstVersion"
TOMBSTONE = "Tombstone"

RESERVED_NAMES = frozenset({"PartitionKey", "RowKey", "Timestamp", "ETag", "odata.etag", VERSION})
"""Names that the store needs itself; no event and no stream can have a property of that name."""

RESERVED_HEADER_NAMES = RESERVED_NAMES | {FIRST_VERSION, TOMBSTONE}
"""Names that no stream can have a property of."""


class FrozenProperties(dict[str, Value]):
    """A dict that cannot be changed, and therefore hashed; it is pickled, copied and written as JSON like a dict."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Callable[..., FrozenProperties], tuple[dict[str, Value]]]:
        return FrozenProperties, (dict(self),)

    def _refuse(self, *_args: object, **_named: object) -> NoReturn:
        raise TypeError("Properties cannot be changed: give new ones, {**properties, ...}.")

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __ior__ = _refuse
        clear = pop = popitem = setdefault = update = _refuse


NO_PROPERTIES = FrozenProperties()


def frozen_copy(properties: Mapping[str, Value], names: frozenset[str] | None) -> FrozenProperties:
    """Return the properties of a row with some names, or with None all but its version."""
    if names is not None:
        return FrozenProperties({name: value for name, value in properties.items() if name in names})
    frozen = FrozenProperties(properties)
    dict.pop(frozen, VERSION, None)  # while no other reference exists
    return frozen


def own_copy(
    properties: Mapping[str, Value | None], reserved: frozenset[str] = frozenset()
) -> FrozenProperties:
    """Return an unchangeable copy without what is None.

    Raises `ValueError` for a reserved name, and `TypeError` for a value that no table holds.
    """
    if not reserved.isdisjoint(properties):
        names = ", ".join(sorted(reserved.intersection(properties)))
        raise ValueError(f"These property names belong to the store: {names}.")
    check_types(properties)
    return FrozenProperties({name: value for name, value in properties.items() if value is not None})


def stream_properties(properties: Mapping[str, Value | None]) -> FrozenProperties:
    """Return a copy of what a caller gives as a stream's properties. Raises `ValueError`."""
    return own_copy(properties, RESERVED_HEADER_NAMES)
