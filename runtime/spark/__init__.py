"""The Spark jobs: batches over message logs, and truncation of all streams of a table."""

from runtime.spark.batch import Batch, BatchOptions, BatchResult, dead_letters, outputs, run_batch
from runtime.spark.session import build_session
from runtime.spark.truncate import truncate

__all__ = [
    "Batch",
    "BatchOptions",
    "BatchResult",
    "build_session",
    "dead_letters",
    "outputs",
    "run_batch",
    "truncate",
]
