"""The tail of a stream: what it says twice is taken from its versions."""

from __future__ import annotations

from collections.abc import Sequence

from eventstore.partition import HEADER
from runtime.messages.message_ids import IdKey, pack_ids, unpack_ids
from runtime.storage.checking.runs import End
from runtime.storage.columns import count_columns, unpack_columns
from runtime.storage.compression import decompress
from runtime.storage.damage import reading
from runtime.storage.run import dates
from runtime.storage.segment import Segment, read_segments
from runtime.storage.tail import Tail


def sound_tail(tail: Tail, first: int, end: End | None) -> Tail:
    """Return a tail with the counts, times and schema version of its versions, on the state after the run before it.

    `first` is the number of the first of them; `end` is None where no run stands before it. A run in another schema
    version does not tell the state, which went through the upcasters. Raises `StoredDataError` for versions that cannot
    be read.
    """
    with reading("The tail of the stream", HEADER):
        if end is not None and end.schema == tail.schema:
            sound = _sound_tail(tail, first, end.state)
            if sound.schema == end.schema:
                return sound
        return _sound_tail(tail, first, tail.before)


def _sound_tail(tail: Tail, first: int, before: bytes) -> Tail:
    schema, after, segments = tail.schema, before, []
    keys = unpack_ids(tail.packed_ids)
    for stored in read_segments(tail.packed, tail.length, tail.packed_ids):
        data = decompress(stored.data, after)
        ids, keys = keys[: count_columns(data)], keys[count_columns(data) :]
        segment, schema, after = _sound(stored, data, ids, after)
        segments.append(segment)
    if keys:
        message = f"{len(keys)} message ids have no version"
        raise ValueError(message)
    return Tail.of(first, schema, before, segments)


def _sound(segment: Segment, data: bytes, ids: Sequence[IdKey], before: bytes) -> tuple[Segment, int, bytes]:
    """Return a segment with what its versions tell, their schema version, and the state after them."""
    columns = unpack_columns(data, [*ids])
    newest, undated = dates(columns.versions.enqueued_at)
    sound = segment._replace(
        length=len(ids), newest=newest, undated=undated, raw_bytes=len(data), ids=pack_ids(ids)
    )
    return sound, columns.schema, columns.versions.after(before)
