"""Process messages consistently: state versions, single messages, batches and truncation.

`Processor` handles single messages, `runtime.spark` runs batches over message logs, `runtime.cli` is the command line.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from runtime.errors import *  # noqa: F403 - all are public

if TYPE_CHECKING:
    from runtime.algorithms.algorithm import Publish
    from runtime.ledger.settings import TableSettings
    from runtime.maintenance.switch import Fork, fork, switch
    from runtime.messages.envelope import Envelope
    from runtime.messages.outcome import Outcome, Output, Reason, Status
    from runtime.processor import Processor

__all__ = [  # noqa: F405 - the errors
    "AppNotFoundError", "ArchiveError", "BatchFailedError", "BatchHeldBackError", "BatchRefusedError",
    "DifferenceError", "Envelope", "Fork", "LeaseHeldError", "LeaseLostError", "LogError",
    "MissingExtraError", "Outcome", "OutcomesMissingError", "Output", "PermanentError", "Processor",
    "Publish", "Reason", "ReplayFailedError", "RetriesExhaustedError", "RuntimeFailure",
    "SchemasUnavailableError", "SendError", "Status", "StoredDataError", "TableSettings", "TargetError",
    "TargetUnavailableError", "TransientError", "UsageError", "fork", "switch",
]  # fmt: skip

# Lazy, because the command line first checks that no module of the user hides a package of this project.
_MODULES = {
    "runtime.algorithms.algorithm": ("Publish",),
    "runtime.ledger.settings": ("TableSettings",),
    "runtime.maintenance.switch": ("Fork", "fork", "switch"),
    "runtime.messages.envelope": ("Envelope",),
    "runtime.messages.outcome": ("Outcome", "Output", "Reason", "Status"),
    "runtime.processor": ("Processor",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any exported value
    """Import the module that defines an exported name on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value
