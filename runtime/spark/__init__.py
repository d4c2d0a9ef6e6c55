"""The Spark jobs: batches over logs and streams, verification, truncation, redrives and publishing.

Names are imported on first use: every Python worker imports this package, and needs no driver modules.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from runtime.errors import MissingExtraError

if TYPE_CHECKING:
    from runtime.batch_options import BatchOptions, TablePlace, VerifyOptions
    from runtime.spark.batch import Batch, BatchResult, dead_letters, outputs, published_outputs, run_batch
    from runtime.spark.publishing import PublishTo, publish
    from runtime.spark.redriving import redrive
    from runtime.spark.reprocessing import Reprocessed, reprocess
    from runtime.spark.scan import letters, register_data_sources
    from runtime.spark.start import build_session
    from runtime.spark.streaming import run_stream
    from runtime.spark.truncation import truncate
    from runtime.spark.verification import Verification, verify
    from runtime.spark.worker.outcomes import OUTCOMES

try:
    for _package in ("pyspark", "pyarrow"):
        import_module(_package)
except ModuleNotFoundError as error:
    raise MissingExtraError(
        f"Batches on Spark need {error.name}: pip install 'consistent-messaging[spark]'."
    ) from error

__all__ = [
    "OUTCOMES",
    "Batch",
    "BatchOptions",
    "BatchResult",
    "PublishTo",
    "Reprocessed",
    "TablePlace",
    "Verification",
    "VerifyOptions",
    "build_session",
    "dead_letters",
    "letters",
    "outputs",
    "publish",
    "published_outputs",
    "redrive",
    "register_data_sources",
    "reprocess",
    "run_batch",
    "run_stream",
    "truncate",
    "verify",
]

# No submodule may share a name with an export, because importing it would shadow the export.
_MODULES = {
    "runtime.batch_options": ("BatchOptions", "TablePlace", "VerifyOptions"),
    "runtime.spark.batch": (
        "Batch",
        "BatchResult",
        "dead_letters",
        "outputs",
        "published_outputs",
        "run_batch",
    ),
    "runtime.spark.publishing": ("PublishTo", "publish"),
    "runtime.spark.redriving": ("redrive",),
    "runtime.spark.reprocessing": ("Reprocessed", "reprocess"),
    "runtime.spark.start": ("build_session",),
    "runtime.spark.scan": ("letters", "register_data_sources"),
    "runtime.spark.streaming": ("run_stream",),
    "runtime.spark.truncation": ("truncate",),
    "runtime.spark.verification": ("Verification", "verify"),
    "runtime.spark.worker.outcomes": ("OUTCOMES",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of any type
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = found
    return found
