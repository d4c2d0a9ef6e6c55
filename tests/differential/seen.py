"""What of a result, or of an error, must be the same on every backend."""

from __future__ import annotations

from typing import Any

from eventstore import Page, Properties, Row, RowError

Seen = dict[Any, Any]


def seen_of_page(page: Page) -> Seen:
    """Return the rows of a page, the order of those with ASCII keys, and whether there are more.

    Values are told apart by type and by all that their text shows: the sign of a zero, a time's zone. ETags
    and continuations differ from backend to backend.
    """
    rows = {(row.partition_key, row.row_key): _seen_of_properties(row.properties) for row in page.rows}
    ordered = [key for key in rows if "".join(key).isascii()]
    return {**rows, "order": ordered, "count": len(page.rows), "has more": page.continuation is not None}


def seen_of_row(row: Row | None) -> Seen:
    """Return the same of one row, if there is one."""
    return seen_of_page(Page((row,) if row else ()))


def seen_of_etags(etags: tuple[str, ...]) -> Seen:
    """Return for which operations a transaction gave ETags."""
    return {"has an ETag": [etag != "" for etag in etags]}


def seen_of_error(error: Exception) -> Seen:
    """Return the type with the row, or with the message when the error is not about one row."""
    facts = (error.row_key, error.index) if isinstance(error, RowError) else str(error)
    return {type(error).__name__: facts}


def _seen_of_properties(properties: Properties) -> Seen:
    return {name: (type(value).__name__, repr(value)) for name, value in properties.items()}
