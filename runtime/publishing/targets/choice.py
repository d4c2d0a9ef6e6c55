"""A target by its url."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from runtime.errors import MissingExtraError, UsageError
from runtime.publishing.publisher import Target, TargetOptions

_FORMS = (
    "A target is sqlite:///FILE, postgresql://..., http://..., https://..., kafka://HOST:PORT, MODULE:FUNCTION, the "
    "connection string of a Service Bus namespace, or env:NAME for an environment variable that holds one of these."
)


def open_target(url: str, options: TargetOptions | None = None) -> Target:
    """Return the target that a url names. Raises `UsageError`, and `MissingExtraError` without its package."""
    url = resolved(url)
    scheme = url.partition(":")[0]
    make = _TARGETS.get(scheme) or (_function if is_function(url) else None)
    if make is None:
        raise UsageError(_FORMS)
    try:
        return make(url, options or TargetOptions())
    except ModuleNotFoundError as error:
        message = f"This target needs {error.name}: pip install 'consistent-messaging[publish]'."
        raise MissingExtraError(message) from error


def is_function(url: str) -> bool:
    """Return whether a target is written `module:function`."""
    module, _, name = url.partition(":")
    return name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def resolved(text: str) -> str:
    """Return what an environment variable holds for `env:NAME`, any other text as it is. Raises `UsageError`."""
    if not text.startswith("env:"):
        return text
    name = text.removeprefix("env:")
    found = os.environ.get(name)
    if not found:
        raise UsageError(f"The environment variable {name} is not set.")
    return found


def _sqlite(url: str, options: TargetOptions) -> Target:
    from runtime.publishing.targets.sql import SqliteTarget  # noqa: PLC0415 - loaded when asked for

    return SqliteTarget(url, options.names, options.batch_id)


def _postgresql(url: str, options: TargetOptions) -> Target:
    from runtime.publishing.targets.postgresql import PostgresTarget  # noqa: PLC0415 - its extra

    return PostgresTarget(url, options.names, options.batch_id)


def _http(url: str, options: TargetOptions) -> Target:
    from runtime.publishing.targets.http import HttpTarget  # noqa: PLC0415 - its extra

    return HttpTarget(url, options)


def _function(url: str, options: TargetOptions) -> Target:
    from runtime.publishing.targets.function import FunctionTarget  # noqa: PLC0415 - loaded when asked for

    return FunctionTarget(url, options)


def _kafka(url: str, options: TargetOptions) -> Target:
    from runtime.publishing.targets.kafka import KafkaTarget  # noqa: PLC0415 - its extra

    return KafkaTarget(url, options.names)


def _service_bus(url: str, options: TargetOptions) -> Target:
    from runtime.publishing.targets.servicebus import ServiceBusTarget  # noqa: PLC0415 - its extra

    return ServiceBusTarget(url, options.names, options.window)


_TARGETS: Mapping[str, Callable[[str, TargetOptions], Target]] = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "postgres": _postgresql,
    "http": _http,
    "https": _http,
    "kafka": _kafka,
    "Endpoint=sb": _service_bus,
}
