"""Serve: a consumer of live queues that handles messages as they come, without Spark.

The consumer reads ahead, and handles many messages of a stream with one query and one transaction. `runtime.Processor`
handles one message at a time. Names are imported on first use, because the command line starts faster without them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtime.serve.consumer import Consumer, Counts
    from runtime.serve.options import ServeOptions

__all__ = ["Consumer", "Counts", "ServeOptions"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any of the names
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "options" if name == "ServeOptions" else "consumer"
    return getattr(import_module(f"{__name__}.{module}"), name)
