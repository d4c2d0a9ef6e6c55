"""The Spark jobs: batches over logs and streams, their verification, and truncation of all streams of a table."""

from typing import TYPE_CHECKING, Any

from runtime.errors import MissingExtraError

if TYPE_CHECKING:
    from runtime.spark.publishing import PublishTo, publish

try:
    from runtime.spark.batch import Batch, dead_letters, outputs, run_batch
    from runtime.spark.batch_options import BatchOptions
    from runtime.spark.redrive import letters, redrive
    from runtime.spark.rounds import BatchResult
    from runtime.spark.schemas import OUTCOMES
    from runtime.spark.sessions.session import build_session
    from runtime.spark.sources import register_data_sources
    from runtime.spark.streaming.query import run_stream
    from runtime.spark.streaming.source import published_outputs
    from runtime.spark.truncate import truncate
    from runtime.spark.verify import Verification, VerifyOptions, verify
    from runtime.spark.workers.connection import TablePlace
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
    "run_batch",
    "run_stream",
    "truncate",
    "verify",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has the name
    """Load what needs an event loop when it is asked for: workers load this package, and most do without one."""
    if name not in ("PublishTo", "publish"):
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from runtime.spark import publishing  # noqa: PLC0415 - see above

    return getattr(publishing, name)
