"""Letters as a table: the columns of a log, and what is known of each letter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pyarrow as pa

from eventstore import Table
from runtime.algorithms.letters.lines import describe_letter
from runtime.algorithms.letters.reading import find_letters
from runtime.algorithms.letters.selection import FoundLetter, Selection
from runtime.clock import is_in_calendar
from runtime.tables.columns import TEXT, TIME, Buffer, chosen
from runtime.tables.wanted import Wanted

LETTER_COLUMNS = {
    "message_id": TEXT,
    "type": TEXT,
    "body": TEXT,
    "sequence": pa.int64(),
    "enqueued_at": TIME,
    "headers": pa.map_(TEXT, TEXT),
    "business_id": TEXT,
    "handler": TEXT,
    "stream": TEXT,
    "letter": TEXT,
    "packed": pa.bool_(),
    "reason": TEXT,
    "error": TEXT,
    "version": pa.int64(),
    "batch": TEXT,
    "refused_at": TIME,
    "tries": pa.int64(),
    "parks": pa.bool_(),
    "behind": TEXT,
}
"""`business_id` is what the sender said, `stream` the business id of the stream in which the letter waits.

A body of msgpack bytes is in hexadecimal digits, and `packed` says so.
"""


async def letters(table: Table, wanted: Wanted) -> AsyncIterator[pa.RecordBatch]:
    """Give the letters that wait, those of the streams first: it costs what `find_letters` says."""
    columns = chosen(LETTER_COLUMNS, wanted.columns)
    buffer = Buffer(columns)
    async for found in find_letters(table, _selection(wanted)):
        is_meant = wanted.handler is not None or wanted.business_id in {None, found.business_id}
        if is_meant and wanted.has(found.letter.refused_at):
            row = letter_row(found)
            buffer.add({name: [row[name]] for name in columns}, 1, len(row["body"] or ""))
        if buffer.is_full:
            yield buffer.take()
    if buffer.rows:
        yield buffer.take()


def letter_row(found: FoundLetter) -> Mapping[str, Any]:
    """Return a letter by its columns: halves of characters, which Arrow has not, are question marks."""
    letter, described = found.letter, describe_letter(found)
    enqueued_at = letter.enqueued_at
    row = {name: _text(described[name]) for name in LETTER_COLUMNS}
    headers = described["headers"] or {}
    return row | {
        "enqueued_at": enqueued_at if enqueued_at is not None and is_in_calendar(enqueued_at) else None,
        "refused_at": letter.refused_at,
        "headers": [(_text(str(name)), _text(str(value))) for name, value in headers.items()],
    }


def _selection(wanted: Wanted) -> Selection:
    if wanted.handler is not None and wanted.business_id is not None:
        return Selection(stream=(wanted.handler, wanted.business_id))
    return Selection(handler=wanted.handler)


def _text(value: Any) -> Any:  # noqa: ANN401 - text is changed, anything else is not
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
