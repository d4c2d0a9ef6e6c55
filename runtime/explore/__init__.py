"""Web pages over a table: batches, objects, messages, dead letters and publications. Needs the extra `sql`."""

from __future__ import annotations

from runtime.errors import MissingExtraError

try:
    from runtime.explore.application import Explorer
except ModuleNotFoundError as error:
    command = "pip install 'consistent-messaging[sql]'"
    raise MissingExtraError(f"The explorer needs {error.name}: {command}.") from error

explorer = Explorer

__all__ = ["Explorer", "explorer"]
