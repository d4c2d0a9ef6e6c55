"""The errors of the event store.

EventStoreError
├── StoreUrlError                 a store URL that is invalid or cannot be used
│   └── TableNotFoundError        the store has no such table
├── StoreUnavailableError         the store did not answer; a write may have taken effect
├── TableNameError                an invalid table name
├── InvalidKeyError               an invalid partition or row key
├── PayloadTooLargeError          over a limit of the table service; nothing was sent
├── StreamNotFoundError           no such stream
├── StreamDeletedError            the stream was deleted and cannot be written again
├── StreamTruncatedError          a requested event was truncated
├── ConcurrencyConflictError      another writer has changed the stream
├── DuplicateEventError           the stream already has an event with this id
├── IncludeConflictError          an included row is not as the caller expected
├── DamagedRowError               a stored row is corrupt or missing
└── RowError                      one operation of a transaction was refused
    ├── RowExistsError            insert of an existing row
    ├── RowNotFoundError          replace, merge or delete of a missing row
    └── RowChangedError           the row's ETag has changed

Every error survives pickling, as its fields are the arguments of its constructor.
"""

from dataclasses import dataclass, fields
from typing import ClassVar


class EventStoreError(Exception):
    """Base class of all errors of the event store."""

    text: ClassVar[str] = ""
    """The message of an error with fields, formatted with `self`."""

    def __post_init__(self) -> None:
        """Set `args` to the fields, since an error is pickled as its class and `args`."""
        self.args = tuple(getattr(self, fact.name) for fact in fields(self))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.text.format(self=self) if self.text else super().__str__()


class StoreUrlError(EventStoreError):
    """Raised for a store URL that is invalid or cannot be used. Never shows the URL's secrets."""


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
    """Whether the call may have taken effect. If so, discard state derived from earlier reads, and read again."""


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

    text = "Event {self.version} of the stream at {self.stream} was truncated."
    stream: str
    version: int


@dataclass(eq=False, repr=False)
class ConcurrencyConflictError(EventStoreError):
    """Raised when another writer has changed the stream since it was read."""

    text = "The stream at {self.stream} was changed by another writer: {self.detail}."
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
class DamagedRowError(EventStoreError):
    """Raised when a stored row is corrupt, or when an event that the stream's header refers to is missing."""

    text = "The row {self.row_key!r} of {self.partition_key!r} {self.problem}."
    partition_key: str
    row_key: str
    problem: str
    continuation: str | None = None
    """The `continuation` of a page that begins after the corrupt row; None if no row follows."""


@dataclass(eq=False, repr=False)
class RowError(EventStoreError):
    """Raised when one operation of a transaction was refused. Nothing was written."""

    text = "Operation {self.index}: the row {self.row_key!r} {self.detail}."
    row_key: str
    index: int
    """Index of the operation in the transaction."""

    detail = "was refused"


class RowExistsError(RowError):
    """Raised when a row to insert already exists."""

    detail = "exists already"


class RowNotFoundError(RowError):
    """Raised when a row to replace, merge or delete does not exist."""

    detail = "does not exist"


class RowChangedError(RowError):
    """Raised when the ETag of a row differs from the ETag in the operation."""

    detail = "has been changed since it was read"
