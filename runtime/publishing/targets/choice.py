"""A target by its url."""

from __future__ import annotations

import os

from runtime.errors import MissingExtraError, UsageError
from runtime.publishing.publisher import Target, TargetOptions


def open_target(url: str, options: TargetOptions | None = None) -> Target:
    """Return the target that a url names. Raises `UsageError`, and `MissingExtraError` without its package."""
    try:
        return _open(resolved(url), options or TargetOptions())
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"This target needs {error.name}: pip install 'consistent-messaging[publish]'."
        ) from error


def _open(url: str, options: TargetOptions) -> Target:
    # Each is imported when it is asked for: most need packages of the extra.
    match url.partition(":")[0]:
        case "sqlite":
            from runtime.publishing.targets.sql import SqliteTarget  # noqa: PLC0415

            return SqliteTarget(url, options)
        case "postgresql" | "postgres":
            from runtime.publishing.targets.postgresql import PostgresTarget  # noqa: PLC0415

            return PostgresTarget(url, options)
        case "http" | "https":
            from runtime.publishing.targets.http import HttpTarget  # noqa: PLC0415

            return HttpTarget(url, options)
        case "kafka":
            from runtime.publishing.targets.kafka import KafkaTarget  # noqa: PLC0415

            return KafkaTarget(url, options)
        case "Endpoint=sb":
            from runtime.publishing.targets.servicebus import ServiceBusTarget  # noqa: PLC0415

            return ServiceBusTarget(url, options)
    if is_function(url):
        from runtime.publishing.targets.function import FunctionTarget  # noqa: PLC0415

        return FunctionTarget(url, options)
    raise UsageError(
        "A target is sqlite:///FILE, postgresql://..., http://..., https://..., kafka://HOST:PORT, MODULE:FUNCTION, "
        "the connection string of a Service Bus namespace, or env:NAME for an environment variable that holds one of "
        "these."
    )


def is_function(url: str) -> bool:
    """Return whether a target is written `module:function`."""
    module, _, name = url.partition(":")
    return name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def resolved(text: str) -> str:
    """Return what an environment variable holds for `env:NAME`, any other text as it is. Raises `UsageError`."""
    if not text.startswith("env:"):
        return text
    name = text.removeprefix("env:")
    if not name.isidentifier():  # may be a url, with its password
        raise UsageError("env: is followed by the name of an environment variable, not by what it holds.")
    found = os.environ.get(name, "").strip()  # a file of secrets may end its lines
    if not found:
        raise UsageError(f"The environment variable {name} is not set.")
    return found
