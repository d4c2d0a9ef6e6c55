"""All errors of the runtime.

RuntimeFailure
├── UsageError                the call or command is invalid; the message says what to change
│   ├── LogError              the message log is missing, empty or malformed
│   ├── AppNotFoundError      `--app` does not name an App
│   ├── BatchRefusedError     the ledger rejects the batch
│   ├── OutcomesMissingError  the outcomes of a batch are missing
│   └── LeaseHeldError        another process holds the lease of the table
├── RetriesExhaustedError     too many conflicts or store failures in a row
├── ReplayFailedError         a version with unpublished outputs cannot be replayed, so the batch fails
├── LeaseLostError            the lease expired or was taken over
├── DifferenceError           a replay differs from its record, and the batch is set to fail
├── StoredDataError           a stored row is corrupt
├── ArchiveError              an export cannot be written, read or imported
├── TargetError               a target rejects published messages
│   └── TargetUnavailableError  a target is unavailable; a retry may succeed
├── SendError                 a sender did not send a message
│   ├── TransientError        a retry may succeed
│   └── PermanentError        a retry cannot succeed
├── SchemasUnavailableError  the schema registry does not answer; a retry may succeed
├── MissingExtraError         a package of an optional extra is not installed
└── BatchFailedError          a batch stopped; resume it with its id
    └── BatchHeldBackError    the batch has too many dead letters

Every error survives pickling: its constructor takes exactly its attributes.
"""

from __future__ import annotations


class RuntimeFailure(Exception):  # noqa: N818 - RuntimeError is Python's own
    """Base of all errors of the runtime."""


class UsageError(RuntimeFailure):
    """Raised for an invalid call or command. The message says what to change."""


class LogError(UsageError):
    """Raised when a message log is missing, empty, or lacks a column."""


class AppNotFoundError(UsageError):
    """Raised when `module:attribute` does not name an App."""


class BatchRefusedError(UsageError):
    """Raised when the ledger rejects a batch.

    The batch id is invalid, unknown, abandoned or was used with other input, or the table was processed with another
    algorithm. Rerunning a published batch is not an error: it returns the outcomes.
    """


class OutcomesMissingError(UsageError):
    """Raised when a folder does not contain the outcomes that the ledger records."""


class LeaseHeldError(UsageError):
    """Raised when another process holds the lease of a table. Names the process, and when the lease expires."""


class LeaseLostError(RuntimeFailure):
    """Raised when a lease expired or was taken over. Work that was done under the lease stays valid."""


class RetriesExhaustedError(RuntimeFailure):
    """Raised after too many conflicts or store failures in a row."""


class ReplayFailedError(RuntimeFailure):
    """Raised when the replay of a version with unpublished outputs fails, or does not match the recorded digests.

    The outputs cannot be reproduced with the current code, so the batch must not publish without them.
    """


class DifferenceError(RuntimeFailure):
    """Raised when the replay of a duplicate differs from its version, in a batch with `--on-difference fail`."""


class StoredDataError(RuntimeFailure):
    """Raised when a stored row is corrupt, or was written by newer code.

    Names the row, stream (partition key), table and store. Callers add the names that the raising code does not know.
    """

    def __init__(
        self, problem: str, row: str = "", stream: str = "", table: str = "", store: str = ""
    ) -> None:
        super().__init__(problem, row, stream, table, store)
        self.problem = problem
        self.row = row
        self.stream = stream
        self.table = table
        self.store = store

    def with_location(
        self, *, row: str = "", stream: str = "", table: str = "", store: str = ""
    ) -> StoredDataError:
        """Return the error with the missing parts of its location filled in."""
        return StoredDataError(
            self.problem, self.row or row, self.stream or stream, self.table or table, self.store or store
        )

    def __str__(self) -> str:
        named = {"row": self.row, "stream": self.stream, "table": self.table, "store": self.store}
        location = ", ".join(f"{kind} {name}" for kind, name in named.items() if name)
        return f"{self.problem} ({location})" if location else self.problem


class ArchiveError(RuntimeFailure):
    """Raised when an export cannot be written, read or imported. Names the missing or corrupt file."""


class TargetError(RuntimeFailure):
    """Raised when a target rejects outputs. Outputs that were sent stay sent, and publishing can be resumed."""


class _RetryAfter(Exception):  # noqa: N818 - a part of two errors
    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after)
        self.message = message
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.message


class TargetUnavailableError(TargetError, _RetryAfter):
    """Raised when a target is unavailable. A retry may succeed, after `retry_after` seconds if given."""


class SendError(RuntimeFailure):
    """Base class of the errors that a sender raises when it has not sent a message."""


class TransientError(SendError, _RetryAfter):
    """Raised by a sender if a retry may succeed, after `retry_after` seconds if given."""


class PermanentError(SendError):
    """Raised by a sender if a retry cannot succeed, for example because of an invalid phone number."""


class SchemasUnavailableError(RuntimeFailure):
    """Raised when a schema registry does not answer. A retry may succeed."""


class MissingExtraError(RuntimeFailure, ImportError):
    """Raised when a package of an optional extra is not installed. Names the extra."""


class BatchFailedError(RuntimeFailure):
    """Raised when a batch stopped. Committed work stays valid, and the batch can be resumed."""


class BatchHeldBackError(BatchFailedError):
    """Raised before committing a round with too many dead letters."""
