"""The tail of a state stream: its newest versions, kept in the header until they are enough for a run.

A few versions at a time would otherwise make a row each time. The tail is a list of segments, one for each commit,
so that one can be added without reading the others: a segment's states are compressed with the state before it as
dictionary. A tail that is full becomes a run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, starmap
from typing import Any, Final, NamedTuple

import msgpack

from eventstore.partition import HEADER
from handlers.unpacking import unpack
from runtime.errors import StoredDataError
from runtime.messages.message_ids import IdKey, pack_ids, unpack_all_ids
from runtime.storage import limits
from runtime.storage.columns import VersionColumns, pack_columns, unpack_columns
from runtime.storage.compression import compress, decompress
from runtime.storage.damage import UNREADABLE, expect, expect_all, shown
from runtime.storage.run import Commit, Run, RunIndex, dates

NO_EVENT = 0
"""Stands for the tail where the version of an event is asked for."""
_FORMAT = 1
_INT: Final = (int,)
_KINDS: Final = (_INT, (str, None), _INT, (int, None), (bool,), _INT, (bytes,), (bytes,), (int, None))
"""The types of the fields of a segment."""


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

    def packed(self) -> tuple[object, ...]:
        """Return the fields as they are stored: without a number that is None, as older code wrote them."""
        return self[:-1] if self.number is None else self

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


@dataclass(frozen=True, slots=True)
class Tail:
    """The newest versions of a stream, from `first` on, in one schema version, and the state before them."""

    first: int
    schema: int
    before: bytes
    segments: tuple[Segment, ...] = ()

    @property
    def count(self) -> int:
        """How many versions there are."""
        return sum([segment.length for segment in self.segments])

    @property
    def size(self) -> int:
        """About how many bytes it takes beside the state before it."""
        return sum([segment.size for segment in self.segments])

    def takes(self, segment: Segment, schema: int) -> bool:
        """Say whether there is room for one more segment, in this schema version."""
        return (
            schema == self.schema
            and self.size + segment.size <= limits.MAX_TAIL_BYTES
            and sum([each.raw_bytes for each in self.segments]) + segment.raw_bytes
            <= limits.MAX_TAIL_RAW_BYTES
        )

    def plus(self, segment: Segment) -> Tail:
        """Return the tail with one more segment."""
        return Tail(self.first, self.schema, self.before, (*self.segments, segment))

    def ids(self) -> list[IdKey]:
        """Return the message ids, in order. Raises `StoredDataError`."""
        try:
            ids = unpack_all_ids([segment.ids for segment in self.segments])
        except UNREADABLE as error:
            raise _corrupt(shown(error)) from error
        if len(ids) != self.count:
            raise _corrupt(f"it holds {len(ids)} message ids for {self.count} versions")
        return ids

    def indexes(self) -> list[RunIndex]:
        """Describe each segment as a run without an event, without its states."""
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
        run = self.run()
        before = run.states_before()[first - self.first]
        ends = accumulate((segment.length for segment in self.segments), initial=self.first)
        kept = [segment for segment, start in zip(self.segments, ends, strict=False) if start >= first]
        return replace(self, first=first, before=before, segments=tuple(kept))

    def run(self) -> Run:
        """Return the tail as a run. Raises `StoredDataError`."""
        versions = VersionColumns()
        state = self.before
        ids = self.ids()
        starts = accumulate((segment.length for segment in self.segments), initial=0)
        for segment, start in zip(self.segments, starts, strict=False):
            try:
                columns = unpack_columns(decompress(segment.data, state), ids[start : start + segment.length])
            except UNREADABLE as error:
                raise _corrupt(shown(error)) from error
            versions.extend(columns.versions)
            state = columns.versions.after(state)
        commits = [segment.commit for segment in self.segments]
        return Run(self.first, self.schema, self.before, versions, commits)

    def pack(self) -> bytes:
        """Return the tail as it is stored."""
        segments = [segment.packed() for segment in self.segments]
        packed: bytes = msgpack.packb((_FORMAT, self.first, self.schema, self.before, segments))
        return packed


def read_tail(data: bytes) -> Tail:
    """Return a tail as it was stored. Raises `StoredDataError`."""
    try:
        form, first, schema, before, segments = unpack(data)
        tail = Tail(expect(first, int), expect(schema, int), expect(before, bytes), _segments(segments))
    except UNREADABLE as error:
        raise _corrupt(shown(error)) from error
    if form != _FORMAT:
        raise _corrupt(f"format {form} is unknown; this code reads format {_FORMAT}")
    if tail.first < 1 or not tail.segments:
        raise _corrupt(f"it begins with version {tail.first} and has {len(tail.segments)} segments")
    return tail


def _segments(stored: Any) -> tuple[Segment, ...]:  # noqa: ANN401 - as they were stored
    """Return the segments, of which a tail may have hundreds: each field is checked for all of them at once."""
    segments = tuple(starmap(Segment, expect(stored, list)))
    for values, kinds in zip(zip(*segments, strict=True), _KINDS, strict=False):
        expect_all(list(values), *kinds)
    shortest = min([segment.length for segment in segments], default=1)
    if shortest < 1:
        message = f"a segment has {shortest} versions"
        raise ValueError(message)
    return segments


def _corrupt(problem: str) -> StoredDataError:
    return StoredDataError(f"The tail of the stream cannot be read: {problem}.", HEADER)
