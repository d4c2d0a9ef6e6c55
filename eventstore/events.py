"""Events as they are given to a stream, and as they are read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from eventstore.includes import Include
from eventstore.port import Properties, Value
from eventstore.properties import NO_PROPERTIES, RESERVED_NAMES, own_copy


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
        properties: Mapping[str, Value | None] = NO_PROPERTIES,
        id: EventId | str | UUID | None = None,  # noqa: A002 - what it is called
        includes: Iterable[Include] = (),
    ) -> None:
        object.__setattr__(self, "properties", own_copy(properties, RESERVED_NAMES))
        object.__setattr__(self, "id", id if id is None or isinstance(id, EventId) else EventId(str(id)))
        object.__setattr__(self, "includes", tuple(includes))


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event in its stream. Versions count from 1, without gaps.

    Events are equal when version and properties are. Beside them: the event's id, in the result of a write and where
    ids were asked for; the time at which it was written, in what was read, by the clock of the service or else of the
    machine; and the ETag of its row, which never changes.
    """

    version: int
    properties: Properties
    id: EventId | None = field(default=None, compare=False)
    time: datetime | None = field(default=None, compare=False)
    etag: str | None = field(default=None, compare=False)
