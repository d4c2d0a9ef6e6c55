"""What can go wrong while messages are processed, in one place.

RuntimeFailure
├── UsageError                what was asked for cannot be done; one sentence says what to change
│   ├── LogError              the message log cannot be read as one
│   ├── AppNotFoundError      `--app` names no App
│   ├── BatchRefusedError     the ledger does not allow to run this batch
│   ├── OutcomesMissingError  the outcomes of a batch are not where it wrote them
│   └── LeaseHeldError        somebody else cleans this table up
├── RetriesExhaustedError     lost races or an unreachable store, too often in a row
├── ReplayFailedError         a version whose outputs are unpublished cannot be replayed: the batch must fail
├── LeaseLostError            the lease was taken over, or has expired: this one stops
├── DifferenceError           a replay differs from what was recorded, and the batch fails on that
├── StoredDataError           a stored row cannot be read
├── ArchiveError              an export cannot be written, read or imported
├── TargetError               a target outside refuses what is published to it
│   └── TargetUnavailableError  it does not answer, or cannot now: another attempt may succeed
├── SendError                 a sender did not send a message to its customer
│   ├── TransientError        another attempt may succeed
│   └── PermanentError        no attempt will ever succeed
├── MissingExtraError         a package is not installed that one of this project's extras brings
└── BatchFailedError          a Spark job of the batch failed; run it again with its id
    └── BatchHeldBackError    the batch has more dead letters than it may have

Every error survives pickling: its constructor takes exactly its attributes.
"""

from __future__ import annotations


class RuntimeFailure(Exception):  # noqa: N818 - RuntimeError is Python's own
    """Root of all errors of the runtime."""


class UsageError(RuntimeFailure):
    """Raised when what was asked for cannot be done; the sentence says what to change."""


class LogError(UsageError):
    """Raised when a message log is not there, is empty, or lacks a column."""


class AppNotFoundError(UsageError):
    """Raised when `module:attribute` does not lead to an App."""


class BatchRefusedError(UsageError):
    """Raised when the ledger refuses a batch.

    Its id is unusable, unknown, abandoned, or was begun with other input; or another algorithm has processed the
    table. A batch that is published is not refused: running it again shows its outcomes.
    """


class OutcomesMissingError(UsageError):
    """Raised when a folder does not hold the outcomes of a batch as the ledger has them."""


class LeaseHeldError(UsageError):
    """Raised when somebody else holds the lease of a table; says who, and until when."""


class LeaseLostError(RuntimeFailure):
    """Raised when a lease was taken over by somebody else, or has expired; what was done by then stays valid."""


class RetriesExhaustedError(RuntimeFailure):
    """Raised when a stream was changed by others, or the store did not answer, too often in a row."""


class ReplayFailedError(RuntimeFailure):
    """Raised when a stored version whose batch has not published cannot be replayed to its digests.

    Its outputs were never published and the present code cannot produce them again, so the batch must not go on
    as if they had been.
    """


class DifferenceError(RuntimeFailure):
    """Raised when the replay of a duplicate has other outputs or another state, in a batch that fails on that."""


class StoredDataError(RuntimeFailure):
    """Raised when a stored row cannot be read: it was damaged, or written by newer code.

    Says which row of which stream, in which table of which store, as far as that is known where it is raised; whoever
    knows more adds it (`at`). A `stream` is named by its partition key.
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
        """Return the error with what was not known of the place."""
        return StoredDataError(
            self.problem, self.row or row, self.stream or stream, self.table or table, self.store or store
        )

    def __str__(self) -> str:
        named = {"row": self.row, "stream": self.stream, "table": self.table, "store": self.store}
        place = ", ".join(f"{what} {name}" for what, name in named.items() if name)
        return f"{self.problem} ({place})" if place else self.problem


class ArchiveError(RuntimeFailure):
    """Raised when an export cannot be written, read or imported; names the file that is missing or damaged."""


class TargetError(RuntimeFailure):
    """Raised when a target refuses what is published to it; what was sent stays sent, and the rest can be resumed."""


class TargetUnavailableError(TargetError):
    """Raised when a target does not answer, or says that it cannot now: another attempt may succeed.

    `retry_after` are the seconds that it asked to wait for, None when it did not say.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after)
        self.message = message
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.message


class SendError(RuntimeFailure):
    """Root of what a sender raises when it did not send a message."""


class TransientError(SendError):
    """Raised by a sender when another attempt may succeed.

    `retry_after` are the seconds that the receiver asked to wait for, None when it did not say.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after)
        self.message = message
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.message


class PermanentError(SendError):
    """Raised by a sender when no attempt will ever succeed: the customer has no such number, the text is refused."""


class MissingExtraError(RuntimeFailure, ImportError):
    """Raised when a package is not installed that one of this project's extras brings; names the extra."""


class BatchFailedError(RuntimeFailure):
    """Raised when the work on a batch stopped; what is stored stays valid and the batch can be resumed."""


class BatchHeldBackError(BatchFailedError):
    """Raised when a batch has more dead letters than it may have, before the round that has them is committed."""
