"""What can go wrong in the event store, in one place.

EventStoreError
├── StoreUrlError                 the store url cannot be used
│   └── TableNotFoundError        the store has no such table
├── StoreUnavailableError         the store did not answer; the call may have taken effect
├── TableNameError                a name that no table can have
├── InvalidKeyError               a key that no table can hold
├── PayloadTooLargeError          over a limit of the table service; nothing was sent
├── StreamNotFoundError           no such stream
├── StreamDeletedError            the stream was deleted, and its place is not used again
├── StreamTruncatedError          an event that was asked for has been cut away
├── ConcurrencyConflictError      the stream is not at the version that the caller holds
├── DuplicateEventError           an event id stands in the stream already
├── IncludeConflictError          an included row is not as the caller expected
├── PartialWriteError             a write in parts failed after some of them
├── DamagedRowError               a row of a stream is not what it was written as, or is gone
└── RowError                      one row of a transaction was refused (raised by tables)
    ├── RowExistsError            insert of a row that is there
    ├── RowNotFoundError          replace, merge or delete of a row that is not there
    └── RowChangedError           the row's ETag is another one

Every error survives pickling: its constructor takes exactly its facts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar


class EventStoreError(Exception):
    """Base class of all errors of the event store."""

    text: ClassVar[str] = ""
    """What an error with facts says, as a format of `self`."""

    def __post_init__(self) -> None:
        """Set `args` to the fields, from which the error is pickled."""
        self.args = tuple(getattr(self, fact.name) for fact in fields(self))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.text.format(self=self) if self.text else super().__str__()


class StoreUrlError(EventStoreError):
    """Raised for a store url that is invalid or cannot be used. Never shows the url's secrets."""


@dataclass(eq=False, repr=False)
class TableNotFoundError(StoreUrlError):
    """Raised when a table does not exist and should not be created."""

    text = "There is no table {self.table} in {self.store}."
    table: str
    store: str


@dataclass(eq=False, repr=False)
class StoreUnavailableError(EventStoreError):
    """Raised when the store did not answer, or refused for a temporary reason."""

    text = "{self.message}"
    message: str
    outcome_unknown: bool = False
    """True when the call may have taken effect all the same: drop what was computed and read again."""


class TableNameError(EventStoreError):
    """Raised for a table name that is not valid in every table service."""


class InvalidKeyError(EventStoreError):
    """Raised for a partition or row key that is empty, too long, or invalid text."""


class PayloadTooLargeError(EventStoreError):
    """Raised before any I/O when a property, row or transaction exceeds a documented limit."""


@dataclass(eq=False, repr=False)
class StreamNotFoundError(EventStoreError):
    """Raised when the stream has no header row."""

    text = "There is no stream at {self.stream}."
    stream: str


@dataclass(eq=False, repr=False)
class StreamDeletedError(EventStoreError):
    """Raised when the stream's header is a tombstone. A deleted stream cannot be written again."""

    text = "The stream at {self.stream} was deleted."
    stream: str


@dataclass(eq=False, repr=False)
class StreamTruncatedError(EventStoreError):
    """Raised when a requested event was truncated."""

    text = "Event {self.version} of the stream at {self.stream} has been cut away."
    stream: str
    version: int


@dataclass(eq=False, repr=False)
class ConcurrencyConflictError(EventStoreError):
    """Raised when another writer has changed the stream since it was read."""

    text = "The stream at {self.stream} was changed by someone else: {self.detail}."
    stream: str
    detail: str


@dataclass(eq=False, repr=False)
class DuplicateEventError(EventStoreError):
    """Raised when the stream already has an event with this id. Nothing was written."""

    text = "The stream at {self.stream} already has an event with the id {self.event_id!r}."
    stream: str
    event_id: str


@dataclass(eq=False, repr=False)
class IncludeConflictError(EventStoreError):
    """Raised when an included row is missing, exists already, or has changed. Nothing was written."""

    text = "The row {self.row_key!r} included with the stream at {self.stream} {self.detail}."
    stream: str
    row_key: str
    detail: str


@dataclass(eq=False, repr=False)
class PartialWriteError(EventStoreError):
    """Raised when one transaction of a write in parts failed; its error is the cause."""

    stream: str
    first_version: int | None
    """Of the first stored event; None when no event is stored and any version was expected."""
    stored: int
    """How many events are stored."""
    uncertain: int
    """How many events after those may be stored: the part that failed with an unknown outcome."""
    total: int

    def __str__(self) -> str:
        stored = "none is known to be stored"
        if self.stored:
            first = self.first_version or 1
            stored = f"the first {self.stored} are stored, as versions {first} to {first + self.stored - 1}"
        uncertain = f", and the next {self.uncertain} may be" if self.uncertain else ""
        return f"Of {self.total} events for the stream at {self.stream}, {stored}{uncertain}."


@dataclass(eq=False, repr=False)
class DamagedRowError(EventStoreError):
    """Raised when a stored row is corrupt, or missing although the stream's header promises it."""

    text = "The row {self.row_key!r} of {self.partition_key!r} {self.problem}."
    partition_key: str
    row_key: str
    problem: str
    continuation: str | None = None
    """Of a page: asks for the rows behind it, None for none."""


@dataclass(eq=False, repr=False)
class RowError(EventStoreError):
    """Raised when one operation of a transaction was refused. Nothing was written."""

    text = "Operation {self.index}: the row {self.row_key!r} {self.detail}."
    row_key: str
    index: int
    """The position of the operation in the transaction."""

    detail = "was refused"


class RowExistsError(RowError):
    """Raised when a row to insert exists."""

    detail = "exists already"


class RowNotFoundError(RowError):
    """Raised when a row to replace, merge or delete does not exist."""

    detail = "does not exist"


class RowChangedError(RowError):
    """Raised when the row's ETag is not the given one."""

    detail = "has been changed since it was read"
