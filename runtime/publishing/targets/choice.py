"""Find a target by its URL."""

from __future__ import annotations

from importlib import import_module

from runtime.errors import MissingExtraError, UsageError
from runtime.options import resolved
from runtime.publishing.publisher import Target, TargetOptions

_TARGETS = {
    "sqlite": "sql.SqliteTarget",
    "postgresql": "postgresql.PostgresTarget",
    "postgres": "postgresql.PostgresTarget",
    "http": "http.HttpTarget",
    "https": "http.HttpTarget",
    "kafka": "kafka.KafkaTarget",
    "Endpoint=sb": "servicebus.ServiceBusTarget",
}
"""Target classes by the scheme of the URL. Imported on demand, as most need packages of the extra."""


def open_target(url: str, options: TargetOptions | None = None) -> Target:
    """Return the target at a URL.

    Raises `UsageError` if the URL is invalid, and `MissingExtraError` if a package is not installed.
    """
    url = resolved(url)
    name = _TARGETS.get(url.partition(":")[0], "function.FunctionTarget" if is_function(url) else "")
    if not name:
        raise UsageError(
            "This is not a valid target. Use sqlite:///FILE, postgresql://..., http://..., https://..., "
            "kafka://HOST:PORT, MODULE:FUNCTION, the connection string of a Service Bus namespace, or env:NAME for an "
            "environment variable that holds one of these."
        )
    module, _, kind = name.partition(".")
    try:
        target: type = getattr(import_module(f"runtime.publishing.targets.{module}"), kind)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"This target needs {error.name}: pip install 'consistent-messaging[publish]'."
        ) from error
    opened: Target = target(url, options or TargetOptions())
    return opened


def is_function(url: str) -> bool:
    """Return whether a target is a function, written `module:function`."""
    module, _, name = url.partition(":")
    return name.isidentifier() and all(part.isidentifier() for part in module.split("."))
