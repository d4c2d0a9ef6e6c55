"""Makes handlers consistent: state versions, the processing of messages, batches and truncation.

`Processor` handles single messages; `runtime.spark` runs batches over message logs; `runtime.cli` is the command line.
"""

from runtime.algorithms.algorithm import Publish
from runtime.batches.settings import TableSettings
from runtime.errors import (
    AppNotFoundError,
    ArchiveError,
    BatchFailedError,
    BatchHeldBackError,
    BatchRefusedError,
    DifferenceError,
    LeaseHeldError,
    LeaseLostError,
    LogError,
    MissingExtraError,
    ReplayFailedError,
    RetriesExhaustedError,
    RuntimeFailure,
    StoredDataError,
    UsageError,
)
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome, Output, Reason, Status
from runtime.processor import Processor

__all__ = [
    "AppNotFoundError",
    "ArchiveError",
    "BatchFailedError",
    "BatchHeldBackError",
    "BatchRefusedError",
    "DifferenceError",
    "Envelope",
    "LeaseHeldError",
    "LeaseLostError",
    "LogError",
    "MissingExtraError",
    "Outcome",
    "Output",
    "Processor",
    "Publish",
    "Reason",
    "ReplayFailedError",
    "RetriesExhaustedError",
    "RuntimeFailure",
    "Status",
    "StoredDataError",
    "TableSettings",
    "UsageError",
]
