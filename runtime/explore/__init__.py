"""Web pages over a table: batches, objects, messages, dead letters and publications. Needs the extra `sql`."""

from __future__ import annotations

from runtime.errors import MissingExtraError

try:
    from runtime.explore.application import Explorer
except ModuleNotFoundError as error:
    raise MissingExtraError(
        f"The explorer needs {error.name}: pip install 'consistent-messaging[sql]'."
    ) from error

explorer = Explorer

__all__ = ["Explorer", "explorer"]
