"""Segments: versions of one commit, as the tail of a stream holds them, each packed behind the one before it.

So one is added to a tail without a look at the others. The ids of all of them are apart: each load searches them.
"""

from __future__ import annotations

from itertools import accumulate, pairwise, starmap
from typing import Final, NamedTuple

import msgpack

from handlers.unpacking import unpack
from runtime.messages.message_ids import pack_ids, unpack_ids
from runtime.storage.columns import VersionColumns, pack_columns
from runtime.storage.compression import compress
from runtime.storage.damage import expect, expect_all
from runtime.storage.run import Commit, dates

_INT: Final = (int,)
_KINDS: Final = (_INT, (str, None), _INT, (int, None), (bool,), _INT, (bytes,), (bytes,), (int, None))
"""The types of the fields of a segment."""
_IDS = 6
"""Where the ids are among them."""


class Segment(NamedTuple):
    """Versions that were committed together, their ids apart from the rest. Times as in `RunIndex`.

    `number` is that of the batch, as in `Commit`.
    """

    length: int
    batch: str | None
    written_at: int
    newest: int | None
    undated: bool
    raw_bytes: int
    ids: bytes
    data: bytes
    number: int | None = None

    @property
    def commit(self) -> Commit:
        """The commit that its versions were stored in."""
        return Commit(self.length, self.batch, self.written_at, self.number)

    def packed(self) -> bytes:
        """Return the fields but the ids, as they are stored: without a number that is None."""
        fields = (*self[:_IDS], self.data)
        packed: bytes = msgpack.packb(fields if self.number is None else (*fields, self.number))
        return packed

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return len(self.ids) + len(self.data) + 32

    @classmethod
    def of(cls, versions: VersionColumns, schema: int, before: bytes, commit: Commit) -> Segment:
        """Return the segment of some versions that follow the encoded state `before`."""
        columns = pack_columns(schema, None, versions)
        ids = pack_ids(versions.message_ids)
        length, batch, written_at, number = commit
        newest, undated = dates(versions.enqueued_at)
        data = compress(columns, before)
        return cls(length, batch, written_at, newest, undated, len(columns), ids, data, number)


def read_segments(packed: bytes, count: int, ids: bytes) -> list[Segment]:
    """Return the segments that were packed one behind the other. Raises one of `damage.UNREADABLE`."""
    header: bytes = msgpack.Packer().pack_array_header(count)
    rows = expect(unpack(header + packed), list)
    segments = list(starmap(Segment, [[*expect(row, list)[:_IDS], b"", *row[_IDS:]] for row in rows]))
    # Each field is checked for all segments at once: there may be hundreds.
    for values, kinds in zip(zip(*segments, strict=True), _KINDS, strict=False):
        expect_all(list(values), *kinds)
    shortest = min([segment.length for segment in segments], default=1)
    if shortest < 1:
        message = f"a segment has {shortest} versions"
        raise ValueError(message)
    ends = accumulate([segment.length for segment in segments], initial=0)
    keys = unpack_ids(ids)
    return [
        segment._replace(ids=pack_ids(keys[first:end]))
        for segment, (first, end) in zip(segments, pairwise(ends), strict=True)
    ]
