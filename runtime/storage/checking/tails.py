"""The tail of a stream: what it says twice is taken from its versions."""

from __future__ import annotations

from dataclasses import replace

from runtime.messages.message_ids import unpack_ids
from runtime.storage.columns import unpack_columns
from runtime.storage.compression import decompress
from runtime.storage.damage import reading
from runtime.storage.run import dates
from runtime.storage.tail import Segment, Tail


def sound_tail(tail: Tail, before: bytes | None) -> Tail:
    """Return a tail with the counts, times and schema version of its versions, made on the state `before` it.

    `before` is None where no run tells. Raises `StoredDataError` for versions that cannot be read.
    """
    state = tail.before if before is None else before
    schema, segments = tail.schema, []
    after = state
    for segment in tail.segments:
        with reading("The tail of the stream"):
            sound, schema, after = _sound(segment, after)
        segments.append(sound)
    return replace(tail, schema=schema, before=state, segments=tuple(segments))


def _sound(segment: Segment, before: bytes) -> tuple[Segment, int, bytes]:
    """Return a segment with what its versions tell, their schema version, and the state after them."""
    ids = unpack_ids(segment.ids)
    data = decompress(segment.data, before)
    columns = unpack_columns(data, ids)
    newest, undated = dates(columns.versions.enqueued_at)
    sound = segment._replace(length=len(ids), newest=newest, undated=undated, raw_bytes=len(data))
    return sound, columns.schema, columns.versions.after(before)
