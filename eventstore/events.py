"""Events as they are given to a stream, and as they are read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from eventstore.includes import Include
from eventstore.port import Properties, Value

VERSION = "Version"
RESERVED_NAMES = frozenset({"PartitionKey", "RowKey", "Timestamp", "ETag", "odata.etag", VERSION})
"""Names that the store needs itself; no event and no stream can have a property of that name."""


def own_copy(properties: Mapping[str, Value | None], reserved: frozenset[str] = RESERVED_NAMES) -> Properties:
    """Return an unchangeable copy without what is None. Raises `ValueError` for a reserved name."""
    if not reserved.isdisjoint(properties):
        names = ", ".join(sorted(reserved.intersection(properties)))
        raise ValueError(f"These property names belong to the store: {names}.")
    return MappingProxyType({name: value for name, value in properties.items() if value is not None})


@dataclass(frozen=True, slots=True)
class EventId:
    """The id of an event: not empty, and once only in its stream."""

    value: str

    def __post_init__(self) -> None:
        if not self.value:
            raise ValueError("An event's id is empty; an event without an id has the id None.")

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, init=False)
class EventData:
    """An event to write: its properties, an id when duplicates are to be refused, and other rows.

    The id costs a row of its own in the transaction. `includes` are rows that are changed together with the
    event or not at all.
    """

    properties: Properties
    id: EventId | None
    includes: tuple[Include, ...]

    def __init__(
        self,
        properties: Mapping[str, Value | None],
        id: EventId | str | UUID | None = None,  # noqa: A002 - what it is called
        includes: Iterable[Include] = (),
    ) -> None:
        object.__setattr__(self, "properties", own_copy(properties))
        object.__setattr__(self, "id", id if id is None or isinstance(id, EventId) else EventId(str(id)))
        object.__setattr__(self, "includes", tuple(includes))


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event in its stream. Versions count from 1, without gaps."""

    version: int
    properties: Properties
