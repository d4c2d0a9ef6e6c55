"""The head of a state stream, and its tail: the newest versions, kept in the header until they are enough for a run.

A few versions at a time would otherwise make a row each time. The tail is a list of segments, one for each commit,
which stay packed until somebody asks for them: each load and each append of a stream costs the same, however many there
are. A segment's states are compressed with the state before it as dictionary. A tail that is full becomes a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, starmap
from typing import Final, NamedTuple
from zlib import crc32

import msgpack

from eventstore import Int64, Properties, Value
from eventstore.header import HEADER
from handlers.codec import unpack
from runtime.clock import to_datetime
from runtime.messages.envelope import IdKey, join_ids, pack_ids, unpack_ids
from runtime.versions import limits
from runtime.versions.columns import VersionColumns, compress, decompress, pack_columns, unpack_columns
from runtime.versions.dead_letters import NONE_WAIT, WAITING_PROPERTIES, Waiting, read_waiting
from runtime.versions.properties import (
    INT32,
    chunk_names,
    expect,
    expect_all,
    join,
    microseconds,
    number,
    reading,
    split,
)
from runtime.versions.run import Commit, Run, RunIndex, dates

# Each segment is packed behind the one before it, so that one is added without a look at the others. The ids of all are
# apart: each load searches them.

_INT: Final = (int,)
_KINDS: Final = (_INT, (str, None), _INT, (int, None), (bool,), _INT, (bytes,), (bytes,), (int, None))
"""The types of the fields of a segment."""
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
"""The first bytes of what was compressed; no msgpack of an array begins with them."""

_RAW_BYTES = 512
"""Up to this size, bytes are stored as they are."""

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
        # A small segment is compressed with the tail, where it is like the others.
        data = compress(columns, before) if len(columns) > _RAW_BYTES else columns
        return cls(length, batch, written_at, newest, undated, len(columns), ids, data, number)


def read_segments(packed: bytes, count: int, ids: bytes) -> list[Segment]:
    """Return the segments that were packed one behind the other. Raises one of `properties.UNREADABLE`."""
    header: bytes = msgpack.Packer().pack_array_header(count)
    rows = expect(unpack(header + packed), list)
    segments = list(starmap(Segment, [[*expect(row, list)[:_IDS], b"", *row[_IDS:]] for row in rows]))
    # Each field is checked for all segments at once: there may be hundreds.
    for values, kinds in zip(zip(*segments, strict=True), _KINDS, strict=False):
        expect_all(list(values), *kinds)
    if any(segment.length < 1 for segment in segments):
        raise ValueError("a segment has no versions")
    keys = iter(unpack_ids(ids))
    return [segment._replace(ids=pack_ids(list(islice(keys, segment.length)))) for segment in segments]


NO_EVENT = 0
"""Stands for the tail where the version of an event is asked for."""
_FORMAT = 2
_FIELDS: Final = (int, int, bytes, int, int, int, bytes, bytes)
"""The types of the fields of a tail, which stand behind the checksum."""


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
    packed_ids: bytes = pack_ids(())
    packed: bytes = b""

    @classmethod
    def of(cls, first: int, schema: int, before: bytes, segments: Iterable[Segment]) -> Tail:
        """Return a tail of segments. Raises one of `properties.UNREADABLE` for ids that are none."""
        tail = cls(first, schema, before)
        for segment in segments:
            tail = tail.plus(segment)
        return tail

    @property
    def size(self) -> int:
        """About how many bytes it takes beside the state before it."""
        return len(self.packed_ids) + len(self.packed)

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, unpacked now. Raises `StoredDataError`."""
        with _reading():
            segments = read_segments(self.packed, self.length, self.packed_ids)
            counted = sum([segment.length for segment in segments])
            if not counted == self.count == len(self.ids()):
                raise ValueError(f"its segments have {counted} versions and it has {self.count}")
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
        count, raw_bytes = self.count + segment.length, self.raw_bytes + segment.raw_bytes
        ids, packed = join_ids(self.packed_ids, segment.ids), self.packed + segment.packed()
        return Tail(self.first, self.schema, self.before, self.length + 1, count, raw_bytes, ids, packed)

    def ids(self) -> list[IdKey]:
        """Return the message ids, in order. Raises `StoredDataError`."""
        with _reading():
            ids = unpack_ids(self.packed_ids)
            if len(ids) != self.count:
                raise ValueError(f"it holds {len(ids)} message ids for {self.count} versions")
        return ids

    def indexes(self) -> list[RunIndex]:
        """Describe each segment as a run without an event, without its states. Raises `StoredDataError`."""
        segments = self.segments
        firsts = accumulate((each.length for each in segments), initial=self.first)
        return [
            RunIndex(NO_EVENT, first, each.length, [each.commit], each.newest, each.undated)
            for first, each in zip(firsts, segments, strict=False)
        ]

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
        state, ids = self.before, iter(self.ids())
        commits = []
        for segment in self.segments:
            with _reading():
                data = decompress(segment.data, state) if segment.data[:4] == _ZSTANDARD else segment.data
                columns = unpack_columns(data, list(islice(ids, segment.length))).versions
            versions.extend(columns)
            state = columns.after(state)
            commits.append(segment.commit)
        return Run(self.first, self.schema, self.before, versions, commits)

    def pack(self) -> bytes:
        """Return the tail as it is stored, behind a checksum of it."""
        begin = self.first, self.schema, self.before
        sizes = self.length, self.count, self.raw_bytes
        body: bytes = msgpack.packb((*begin, *sizes, self.packed_ids, self.packed))
        stored = compress(body) if len(body) > _RAW_BYTES else body
        packed: bytes = msgpack.packb((_FORMAT, crc32(body), stored))
        return packed


def read_tail(data: bytes) -> Tail:
    """Return a tail as it was stored, whose segments are not looked at. Raises `StoredDataError` for a changed bit."""
    with _reading():
        form, *fields = expect(unpack(data, most=len(_FIELDS)), list)
        if form != _FORMAT:
            raise ValueError(f"format {form} is unknown; this code reads format {_FORMAT}")
        checksum, body = fields
        if expect(body, bytes)[:4] == _ZSTANDARD:
            body = decompress(body)
        if crc32(body) != expect(checksum, int):
            raise ValueError("its bytes are not those that its checksum was taken of")
        values = expect(unpack(body, most=len(_FIELDS)), list)
        tail = Tail(*[expect(value, kind) for value, kind in zip(values, _FIELDS, strict=True)])
        if tail.first < 1 or tail.length < 1:
            raise ValueError(f"it begins with version {tail.first} and has {tail.length} segments")
    return tail


def _reading() -> reading:
    return reading("The tail of the stream", HEADER)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """That an object was forgotten, and when, in microseconds since 1970 UTC.

    One that `refuses` takes no message any more. Any other begins a new history, for messages that were enqueued later.
    """

    at: int
    refuses: bool = True

    def properties(self) -> dict[str, Value]:
        """Return the properties that a row has for it."""
        return {"Forgotten": to_datetime(self.at), **({"Refuses": True} if self.refuses else {})}


def read_tombstone(properties: Properties) -> Tombstone | None:
    """Return the tombstone that a row's properties hold, None when its object was never forgotten."""
    at = microseconds(properties, "Forgotten")
    if at is None and "Refuses" in properties:
        raise ValueError("the object refuses messages, and was never forgotten")
    return None if at is None else Tombstone(at, expect(properties.get("Refuses", False), bool))


_TAIL = chunk_names("Tail", 2)
HEAD_PROPERTIES = [
    "State",
    "StateSchema",
    "StateVersions",
    "KeptFrom",
    "LastNow",
    "Horizon",
    "UndatedCut",
    *WAITING_PROPERTIES,
    "Forgotten",
    "Refuses",
    *_TAIL,
]


class Head(NamedTuple):
    """The newest version of a state, and from where on history is kept.

    `state` is the newest encoded state, None when it is too large for a header and must be read from the newest run.
    `tail` are the newest versions, None when all are in runs. `versions` counts all versions ever made, `kept_from` is
    the first that is kept. History up to the `horizon` may be gone: an older unknown message cannot be told from a
    duplicate, nor can one without a time when `undated_cut`. `waiting` tells of its letters. A stream that has letters
    only has no state yet, nor has one that was forgotten, which has a `tombstone`. Times are microseconds since 1970
    UTC.
    """

    state: bytes | None
    schema: int
    versions: int = 0
    kept_from: int = 1
    last_now: int = 0
    horizon: int | None = None
    undated_cut: bool = False
    tail: Tail | None = None
    waiting: Waiting = NONE_WAIT
    tombstone: Tombstone | None = None

    @property
    def refuses(self) -> bool:
        """Whether the object was forgotten, and takes no message any more."""
        return self.tombstone is not None and self.tombstone.refuses

    def is_too_late(self, enqueued_at: int | None) -> bool:
        """Say whether an unknown message can no longer be told from a duplicate."""
        if enqueued_at is None:
            return self.undated_cut
        return self.horizon is not None and enqueued_at <= self.horizon

    def properties(self) -> Properties:
        """Return the header's properties."""
        properties: dict[str, Value] = {
            "StateSchema": self.schema,
            "StateVersions": Int64(self.versions),
            "LastNow": to_datetime(self.last_now),
        }
        if self.versions and self.state is not None and len(self.state) <= limits.MAX_HEAD_STATE_BYTES:
            properties["State"] = self.state
        if self.kept_from > 1:
            properties["KeptFrom"] = Int64(self.kept_from)
        if self.horizon is not None:
            properties["Horizon"] = to_datetime(self.horizon)
        if self.undated_cut:
            properties["UndatedCut"] = True
        properties.update(self.waiting.properties())
        if self.tombstone is not None:
            properties.update(self.tombstone.properties())
        if self.tail is not None:
            split(properties, _TAIL, self.tail.pack())
        return properties


def is_of_state(properties: Properties) -> bool:
    """Say whether the properties of a header are those of a state stream, even if one of them is lost."""
    return "StateVersions" in properties or "StateSchema" in properties


def read_head(properties: Properties) -> Head:
    """Return the head that a header's properties hold. Raises `StoredDataError`."""
    with reading("The header of the stream", HEADER):
        head = Head(
            state=expect(properties.get("State"), bytes, None),
            schema=number(properties, "StateSchema", most=INT32),
            versions=number(properties, "StateVersions"),
            kept_from=number(properties, "KeptFrom", 1),
            last_now=microseconds(properties, "LastNow") or 0,
            horizon=microseconds(properties, "Horizon"),
            undated_cut=expect(properties.get("UndatedCut", False), bool),
            tail=read_tail(join(properties, _TAIL)) if _TAIL[0] in properties else None,
            waiting=read_waiting(properties),
            tombstone=read_tombstone(properties),
        )
        if head.schema < 1 or not 1 <= head.kept_from <= head.versions + 1:
            raise ValueError(f"schema {head.schema}, {head.versions} versions, kept from {head.kept_from}")
        last = head.versions if head.tail is None else head.tail.first + head.tail.count - 1
        if last != head.versions:
            raise ValueError(f"its tail ends with version {last} of {head.versions}")
    return head
