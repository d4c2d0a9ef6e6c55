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
    DeliveryStoppedError,
    DifferenceError,
    LeaseHeldError,
    LeaseLostError,
    LogError,
    MissingExtraError,
    PermanentError,
    ReplayFailedError,
    RetriesExhaustedError,
    RuntimeFailure,
    SendError,
    StoredDataError,
    TargetError,
    TargetUnavailableError,
    TransientError,
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
    "DeliveryStoppedError",
    "DifferenceError",
    "Envelope",
    "LeaseHeldError",
    "LeaseLostError",
    "LogError",
    "MissingExtraError",
    "Outcome",
    "Output",
    "PermanentError",
    "Processor",
    "Publish",
    "Reason",
    "ReplayFailedError",
    "RetriesExhaustedError",
    "RuntimeFailure",
    "SendError",
    "Status",
    "StoredDataError",
    "TableSettings",
    "TargetError",
    "TargetUnavailableError",
    "TransientError",
    "UsageError",
]
