"""Row keys for message ids: the id itself where it fits, so that it can be read in the table, else its digest."""

from __future__ import annotations

from hashlib import sha256

from runtime.messages.message_ids import IdKey, id_text

FIRST, LAST = "ID-", "ID~"
"""The bounds of the row keys of messages within their partition."""

_LONGEST = 120  # three times as many characters once each is escaped, which any table holds


def row_key(message_id: IdKey) -> str:
    """Return the row key of a message id. No two ids have the same."""
    text = id_text(message_id)
    if len(text) <= _LONGEST:
        return f"ID-T-{text}"
    return f"ID-D-{sha256(text.encode()).hexdigest()}"
