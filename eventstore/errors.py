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

Every error survives pickling: its constructor takes exactly its attributes.
"""

from __future__ import annotations


class EventStoreError(Exception):
    """Root of all errors of the event store."""


class StoreUrlError(EventStoreError):
    """Raised when a store url cannot be understood or used. Never shows the url's secrets."""


class TableNotFoundError(StoreUrlError):
    """Raised when the store has no such table, and it was not asked to make it."""

    def __init__(self, table: str, store: str) -> None:
        super().__init__(table, store)
        self.table = table
        self.store = store

    def __str__(self) -> str:
        return f"There is no table {self.table} in {self.store}."


class StoreUnavailableError(EventStoreError):
    """Raised when the store did not answer, or refused for a reason that may pass.

    `outcome_unknown` is True when the call may have taken effect all the same: drop what was
    computed and read again.
    """

    def __init__(self, message: str, outcome_unknown: bool = False) -> None:  # noqa: FBT001, FBT002 - pickling gives it by position
        super().__init__(message, outcome_unknown)
        self.message = message
        self.outcome_unknown = outcome_unknown

    def __str__(self) -> str:
        return self.message


class TableNameError(EventStoreError):
    """Raised when some table service does not take a name for a table."""


class InvalidKeyError(EventStoreError):
    """Raised when a partition or row key cannot be stored: empty, too long, or no valid text."""


class PayloadTooLargeError(EventStoreError):
    """Raised before any I/O when a property, row or transaction is over a documented limit."""


class StreamNotFoundError(EventStoreError):
    """Raised when the stream has no header row."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.stream = stream

    def __str__(self) -> str:
        return f"There is no stream at {self.stream}."


class StreamDeletedError(EventStoreError):
    """Raised when the stream's header is a tombstone: it was deleted, and nothing can be written there."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.stream = stream

    def __str__(self) -> str:
        return f"The stream at {self.stream} was deleted."


class StreamTruncatedError(EventStoreError):
    """Raised when an event was asked for that truncation has removed."""

    def __init__(self, stream: str, version: int) -> None:
        super().__init__(stream, version)
        self.stream = stream
        self.version = version

    def __str__(self) -> str:
        return f"Event {self.version} of the stream at {self.stream} has been cut away."


class ConcurrencyConflictError(EventStoreError):
    """Raised when the stream's header is not the one that the caller holds: someone else wrote."""

    def __init__(self, stream: str, detail: str) -> None:
        super().__init__(stream, detail)
        self.stream = stream
        self.detail = detail

    def __str__(self) -> str:
        return f"The stream at {self.stream} was changed by someone else: {self.detail}."


class DuplicateEventError(EventStoreError):
    """Raised when an event id is in the stream already; nothing was written."""

    def __init__(self, stream: str, event_id: str) -> None:
        super().__init__(stream, event_id)
        self.stream = stream
        self.event_id = event_id

    def __str__(self) -> str:
        return f"The stream at {self.stream} already has an event with the id {self.event_id!r}."


class IncludeConflictError(EventStoreError):
    """Raised when an included row is missing, there already, or changed; nothing was written."""

    def __init__(self, stream: str, row_key: str, detail: str) -> None:
        super().__init__(stream, row_key, detail)
        self.stream = stream
        self.row_key = row_key
        self.detail = detail

    def __str__(self) -> str:
        return f"The row {self.row_key!r} included with the stream at {self.stream} {self.detail}."


class PartialWriteError(EventStoreError):
    """Raised when one part of a write in parts failed; its cause is the error of that part.

    Of `total` events, `stored` are in the stream, from `first_version` on (None when none is stored and any version was
    expected). Whether the next `uncertain` ones, the part that failed, are stored is not known; 0 when they are not.
    """

    def __init__(
        self, stream: str, first_version: int | None, stored: int, uncertain: int, total: int
    ) -> None:
        super().__init__(stream, first_version, stored, uncertain, total)
        self.stream = stream
        self.first_version = first_version
        self.stored = stored
        self.uncertain = uncertain
        self.total = total

    def __str__(self) -> str:
        stored = "none is known to be stored"
        if self.stored:
            first = self.first_version or 1
            stored = f"the first {self.stored} are stored, as versions {first} to {first + self.stored - 1}"
        uncertain = f", and the next {self.uncertain} may be" if self.uncertain else ""
        return f"Of {self.total} events for the stream at {self.stream}, {stored}{uncertain}."


class DamagedRowError(EventStoreError):
    """Raised when a row of a stream is not what it was written as, or is gone although its header promises it."""

    def __init__(self, partition_key: str, row_key: str, problem: str) -> None:
        super().__init__(partition_key, row_key, problem)
        self.partition_key = partition_key
        self.row_key = row_key
        self.problem = problem

    def __str__(self) -> str:
        return f"The row {self.row_key!r} of {self.partition_key!r} {self.problem}."


class RowError(EventStoreError):
    """Raised when one operation of a transaction was refused; nothing was written.

    `index` is the position of the operation in the transaction.
    """

    detail = "was refused"

    def __init__(self, row_key: str, index: int) -> None:
        super().__init__(row_key, index)
        self.row_key = row_key
        self.index = index

    def __str__(self) -> str:
        return f"Operation {self.index}: the row {self.row_key!r} {self.detail}."


class RowExistsError(RowError):
    """Raised when a row to insert is there already."""

    detail = "exists already"


class RowNotFoundError(RowError):
    """Raised when a row to replace, merge or delete is not there."""

    detail = "does not exist"


class RowChangedError(RowError):
    """Raised when a row's ETag is not the one given."""

    detail = "has been changed since it was read"
