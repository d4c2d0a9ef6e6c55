"""The tail of a state stream: its newest versions, kept in the header until they are enough for a run.

A few versions at a time would otherwise make a row each time. The tail is a list of segments, one for each commit,
which stay packed until somebody asks for them: each load and each append of a stream costs the same, however many there
are. A segment's states are compressed with the state before it as dictionary. A tail that is full becomes a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from zlib import crc32

import msgpack

from eventstore.partition import HEADER
from handlers.unpacking import unpack
from runtime.errors import StoredDataError
from runtime.messages.message_ids import IdKey, join_ids, pack_ids, unpack_ids
from runtime.storage import limits
from runtime.storage.columns import VersionColumns, unpack_columns
from runtime.storage.compression import decompress
from runtime.storage.damage import UNREADABLE, expect, shown
from runtime.storage.run import Run, RunIndex
from runtime.storage.segment import Segment, read_segments

NO_EVENT = 0
"""Stands for the tail where the version of an event is asked for."""
_FORMAT = 2
_FIELDS = 8
"""How many fields stand behind the checksum."""
_NO_IDS = pack_ids([])


@dataclass(frozen=True, slots=True)
class Tail:
    """The newest versions of a stream, from `first` on, in one schema version, and the state before them.

    `count` is how many versions there are, `raw_bytes` what they take before compression. `packed_ids` are those of
    all, `packed` are the segments without them, `length` of them.
    """

    first: int
    schema: int
    before: bytes
    length: int = 0
    count: int = 0
    raw_bytes: int = 0
    packed_ids: bytes = _NO_IDS
    packed: bytes = b""

    @classmethod
    def of(cls, first: int, schema: int, before: bytes, segments: Iterable[Segment]) -> Tail:
        """Return a tail of segments. Raises one of `damage.UNREADABLE` for ids that are none."""
        each = list(segments)
        return cls(
            first,
            schema,
            before,
            len(each),
            sum([segment.length for segment in each]),
            sum([segment.raw_bytes for segment in each]),
            pack_ids([key for segment in each for key in unpack_ids(segment.ids)]),
            b"".join([segment.packed() for segment in each]),
        )

    @property
    def size(self) -> int:
        """About how many bytes it takes beside the state before it."""
        return len(self.packed_ids) + len(self.packed)

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, unpacked now. Raises `StoredDataError`."""
        try:
            segments = read_segments(self.packed, self.length, self.packed_ids)
        except UNREADABLE as error:
            raise _corrupt(shown(error)) from error
        counted = sum([segment.length for segment in segments])
        if not counted == self.count == len(self.ids()):
            raise _corrupt(f"its segments have {counted} versions and it has {self.count}")
        return segments

    def takes(self, segment: Segment, schema: int) -> bool:
        """Say whether there is room for one more segment, in this schema version."""
        return (
            schema == self.schema
            and self.size + segment.size <= limits.MAX_TAIL_BYTES
            and self.raw_bytes + segment.raw_bytes <= limits.MAX_TAIL_RAW_BYTES
        )

    def plus(self, segment: Segment) -> Tail:
        """Return the tail with one more segment."""
        return Tail(
            self.first,
            self.schema,
            self.before,
            self.length + 1,
            self.count + segment.length,
            self.raw_bytes + segment.raw_bytes,
            join_ids(self.packed_ids, segment.ids),
            self.packed + segment.packed(),
        )

    def ids(self) -> list[IdKey]:
        """Return the message ids, in order. Raises `StoredDataError`."""
        try:
            ids = unpack_ids(self.packed_ids)
        except UNREADABLE as error:
            raise _corrupt(shown(error)) from error
        if len(ids) != self.count:
            raise _corrupt(f"it holds {len(ids)} message ids for {self.count} versions")
        return ids

    def indexes(self) -> list[RunIndex]:
        """Describe each segment as a run without an event, without its states. Raises `StoredDataError`."""
        indexes = []
        first = self.first
        for segment in self.segments:
            commits = [segment.commit]
            indexes.append(
                RunIndex(NO_EVENT, first, segment.length, commits, segment.newest, segment.undated)
            )
            first += segment.length
        return indexes

    def from_version(self, first: int) -> Tail:
        """Return the tail without the segments before a version, with which one of them begins."""
        segments = self.segments
        before = self.run().states_before()[first - self.first]
        ends = accumulate((segment.length for segment in segments), initial=self.first)
        kept = [segment for segment, start in zip(segments, ends, strict=False) if start >= first]
        return Tail.of(first, self.schema, before, kept)

    def run(self) -> Run:
        """Return the tail as a run. Raises `StoredDataError`."""
        versions = VersionColumns()
        state, segments = self.before, self.segments
        ids = self.ids()
        starts = accumulate((segment.length for segment in segments), initial=0)
        for segment, start in zip(segments, starts, strict=False):
            try:
                columns = unpack_columns(decompress(segment.data, state), ids[start : start + segment.length])
            except UNREADABLE as error:
                raise _corrupt(shown(error)) from error
            versions.extend(columns.versions)
            state = columns.versions.after(state)
        commits = [segment.commit for segment in segments]
        return Run(self.first, self.schema, self.before, versions, commits)

    def pack(self) -> bytes:
        """Return the tail as it is stored, behind a checksum of it."""
        fields = (
            self.first,
            self.schema,
            self.before,
            self.length,
            self.count,
            self.raw_bytes,
            self.packed_ids,
            self.packed,
        )
        body: bytes = msgpack.packb(fields)
        packed: bytes = msgpack.packb((_FORMAT, crc32(body), body))
        return packed


def read_tail(data: bytes) -> Tail:
    """Return a tail as it was stored, whose segments are not looked at. Raises `StoredDataError` for a changed bit."""
    try:
        form, *fields = expect(unpack(data, most=_FIELDS), list)
        if form != _FORMAT:
            raise _corrupt(f"format {form} is unknown; this code reads format {_FORMAT}")
        checksum, body = fields
        if crc32(expect(body, bytes)) != expect(checksum, int):
            raise _corrupt("its bytes are not those that its checksum was taken of")
        first, schema, before, length, count, raw_bytes, ids, packed = expect(
            unpack(body, most=_FIELDS), list
        )
        tail = Tail(
            expect(first, int),
            expect(schema, int),
            expect(before, bytes),
            expect(length, int),
            expect(count, int),
            expect(raw_bytes, int),
            expect(ids, bytes),
            expect(packed, bytes),
        )
    except UNREADABLE as error:
        raise _corrupt(shown(error)) from error
    if tail.first < 1 or tail.length < 1:
        raise _corrupt(f"it begins with version {tail.first} and has {tail.length} segments")
    return tail


def _corrupt(problem: str) -> StoredDataError:
    return StoredDataError(f"The tail of the stream cannot be read: {problem}.", HEADER)
