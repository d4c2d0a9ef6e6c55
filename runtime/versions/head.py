"""The head of a state stream: its header row, with the tail, which holds the newest versions until they fill a run.

Without a tail, each small commit would add a row. The tail is a list of segments, one per commit. Segments are decoded
on demand, so the cost of load and append does not depend on their number. A full tail becomes a run.
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
from runtime.versions import properties as typed
from runtime.versions import run as runs
from runtime.versions.dead_letter_rows import NONE_WAIT, WAITING_PROPERTIES, Waiting, read_waiting
from runtime.versions.properties import expect, expect_all
from runtime.versions.run import Commit, Run, RunIndex, VersionColumns

# Segments are concatenated, so that appending a segment decodes no other. The ids are stored separately, because each
# load searches them.

_INT: Final = (int,)
_KINDS: Final = (_INT, (str, None), _INT, (int, None), (bool,), _INT, (bytes,), (bytes,), (int, None))
"""The types of the fields of a segment."""
_ZSTANDARD = b"\x28\xb5\x2f\xfd"  # the magic number of compressed data. No msgpack array begins with it.

_RAW_BYTES = 512  # a segment up to this size is not compressed
_RAW_TAIL_BYTES = 1536  # nor a tail up to this size. SQLite compresses its row with a dictionary.

_IDS = 6  # the index of `ids` among the fields


class Segment(NamedTuple):
    """Versions that were committed together. Times are in microseconds since 1970 UTC."""

    length: int
    batch: str | None
    written_at: int
    newest: int | None  # the newest `enqueued_at`
    undated: bool  # whether any message has no `enqueued_at`
    raw_bytes: int  # before compression
    ids: bytes
    data: bytes
    number: int | None = None  # of the batch; see `Commit`

    @property
    def commit(self) -> Commit:
        return Commit(self.length, self.batch, self.written_at, self.number)

    def packed(self) -> bytes:
        """Encode all fields but the ids. A batch number of `None` is omitted."""
        fields = (*self[:_IDS], self.data)
        packed: bytes = msgpack.packb(fields if self.number is None else (*fields, self.number))
        return packed

    @property
    def size(self) -> int:
        return len(self.ids) + len(self.data) + 32

    @classmethod
    def of(cls, versions: VersionColumns, schema: int, before: bytes, commit: Commit) -> Segment:
        """Encode the versions of one commit as a segment. `before` is the encoded state before these versions."""
        columns = runs.pack_columns(schema, None, versions)
        ids = pack_ids(versions.message_ids)
        length, batch, written_at, number = commit
        newest, undated = runs.dates(versions.enqueued_at)
        # A small segment is compressed together with the tail, which has similar segments. For a large one, the state
        # before it serves as dictionary.
        data = runs.compress(columns, before) if len(columns) > _RAW_BYTES else columns
        return cls(length, batch, written_at, newest, undated, len(columns), ids, data, number)


def read_segments(packed: bytes, count: int, ids: bytes) -> list[Segment]:
    """Decode `count` concatenated segments with message ids `ids`. Raises one of `properties.UNREADABLE` if corrupt."""
    header: bytes = msgpack.Packer().pack_array_header(count)
    rows = expect(unpack(header + packed), list)
    segments = list(starmap(Segment, [[*expect(row, list)[:_IDS], b"", *row[_IDS:]] for row in rows]))
    # Checked by column, because there may be hundreds of segments.
    for values, kinds in zip(zip(*segments, strict=True), _KINDS, strict=False):
        expect_all(list(values), *kinds)
    if any(segment.length < 1 for segment in segments):
        raise ValueError("a segment has no versions")
    keys = iter(unpack_ids(ids))
    return [segment._replace(ids=pack_ids(list(islice(keys, segment.length)))) for segment in segments]


NO_EVENT = 0  # the event number of the tail
_FORMAT = 2
_FIELDS: Final = (int, int, bytes, int, int, int, bytes, bytes)
"""The types of the fields of a tail that follow the format and the checksum."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The newest versions of a stream, all in one schema version."""

    first: int  # the number of the first version
    schema: int
    before: bytes  # the encoded state before the first version
    length: int = 0  # the number of segments
    count: int = 0  # the number of versions
    raw_bytes: int = 0  # of the segments, before compression
    packed_ids: bytes = pack_ids(())
    packed: bytes = b""  # the segments, without ids

    @classmethod
    def of(cls, first: int, schema: int, before: bytes, segments: Iterable[Segment]) -> Tail:
        """Join segments into a tail from version `first` on. Raises one of `properties.UNREADABLE` for invalid ids."""
        tail = cls(first, schema, before)
        for segment in segments:
            tail = tail.plus(segment)
        return tail

    @property
    def size(self) -> int:
        return len(self.packed_ids) + len(self.packed)

    @property
    def segments(self) -> Sequence[Segment]:
        """The decoded segments. Raises `StoredDataError` if the tail is corrupt."""
        with _reading():
            segments = read_segments(self.packed, self.length, self.packed_ids)
            counted = sum([segment.length for segment in segments])
            if not counted == self.count == len(self.ids()):
                raise ValueError(f"its segments have {counted} versions instead of {self.count}")
        return segments

    def takes(self, segment: Segment, schema: int) -> bool:
        """Return whether a segment fits: its `schema` version is that of the tail, and the tail has room."""
        return (
            schema == self.schema
            and self.size + segment.size <= limits.MAX_TAIL_BYTES
            and self.raw_bytes + segment.raw_bytes <= limits.MAX_TAIL_RAW_BYTES
        )

    def plus(self, segment: Segment) -> Tail:
        count, raw_bytes = self.count + segment.length, self.raw_bytes + segment.raw_bytes
        ids, packed = join_ids(self.packed_ids, segment.ids), self.packed + segment.packed()
        return Tail(self.first, self.schema, self.before, self.length + 1, count, raw_bytes, ids, packed)

    def ids(self) -> list[IdKey]:
        """Return the message ids of all versions, oldest first. Raises `StoredDataError` if the ids are corrupt."""
        with _reading():
            ids = unpack_ids(self.packed_ids)
            if len(ids) != self.count:
                raise ValueError(f"it holds {len(ids)} message ids for {self.count} versions")
        return ids

    def indexes(self) -> list[RunIndex]:
        """Return a `RunIndex` for each segment. Raises `StoredDataError` if the tail is corrupt."""
        segments = self.segments
        firsts = accumulate((each.length for each in segments), initial=self.first)
        return [
            RunIndex(NO_EVENT, first, each.length, [each.commit], each.newest, each.undated)
            for first, each in zip(firsts, segments, strict=False)
        ]

    def from_version(self, first: int) -> Tail:
        """Return the tail without the versions before `first`, which must be the first version of a segment."""
        segments = self.segments
        before = self.run().states_before()[first - self.first]
        ends = accumulate((segment.length for segment in segments), initial=self.first)
        kept = [segment for segment, start in zip(segments, ends, strict=False) if start >= first]
        return Tail.of(first, self.schema, before, kept)

    def run(self) -> Run:
        """Return the tail as a run. Raises `StoredDataError` if the tail is corrupt."""
        versions = VersionColumns()
        state, ids = self.before, iter(self.ids())
        commits = []
        for segment in self.segments:
            with _reading():
                data = segment.data
                if data[:4] == _ZSTANDARD:
                    data = runs.decompress(data, state)
                columns = runs.unpack_columns(data, list(islice(ids, segment.length))).versions
            versions.extend(columns)
            state = columns.after(state)
            commits.append(segment.commit)
        return Run(self.first, self.schema, self.before, versions, commits)

    def pack(self) -> bytes:
        """Encode the tail, with a checksum."""
        begin = self.first, self.schema, self.before
        sizes = self.length, self.count, self.raw_bytes
        body: bytes = msgpack.packb((*begin, *sizes, self.packed_ids, self.packed))
        stored = runs.compress(body) if len(body) > _RAW_TAIL_BYTES else body
        packed: bytes = msgpack.packb((_FORMAT, crc32(body), stored))
        return packed


def read_tail(data: bytes) -> Tail:
    """Decode a tail, but not its segments. Raises `StoredDataError` if the data is corrupt or its checksum wrong."""
    with _reading():
        form, *fields = expect(unpack(data, most=len(_FIELDS)), list)
        if form != _FORMAT:
            raise ValueError(f"format {form} is unknown; this code reads format {_FORMAT}")
        checksum, body = fields
        if expect(body, bytes)[:4] == _ZSTANDARD:
            body = runs.decompress(body)
        if crc32(body) != expect(checksum, int):
            raise ValueError("its bytes do not match its checksum")
        values = expect(unpack(body, most=len(_FIELDS)), list)
        tail = Tail(*[expect(value, kind) for value, kind in zip(values, _FIELDS, strict=True)])
        if tail.first < 1 or tail.length < 1:
            raise ValueError(f"it begins with version {tail.first} and has {tail.length} segments")
    return tail


def _reading() -> typed.reading:
    return typed.reading("The tail of the stream", HEADER)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The mark of a business object that was forgotten."""

    at: int  # in microseconds since 1970 UTC
    refuses: bool = True  # False: messages enqueued later begin a new history

    def properties(self) -> dict[str, Value]:
        return {"Forgotten": to_datetime(self.at), **({"Refuses": True} if self.refuses else {})}


def read_tombstone(properties: Properties) -> Tombstone | None:
    """Decode the tombstone in a header. Return `None` if the object was never forgotten."""
    at = typed.microseconds(properties, "Forgotten")
    if at is None and "Refuses" in properties:
        raise ValueError("the object rejects messages, but was never forgotten")
    return None if at is None else Tombstone(at, expect(properties.get("Refuses", False), bool))


_TAIL = typed.chunk_names("Tail", 2)
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
    "Followed",
    "Shared",
    *_TAIL,
]


class Head(NamedTuple):
    """The newest state of a stream, and the extent of its history. A stream that has only dead letters has no state."""

    state: bytes | None  # encoded; None: too large for the header, so only in the newest run
    schema: int
    versions: int = 0  # the number of versions ever made
    kept_from: int = 1  # the first version that is still stored
    last_now: int = 0  # the recorded time of the newest version, in microseconds since 1970 UTC
    horizon: int | None = None  # unknown messages enqueued up to this time may be duplicates
    undated_cut: bool = False  # whether unknown messages without `enqueued_at` may be duplicates
    tail: Tail | None = None  # None: all versions are in runs
    waiting: Waiting = NONE_WAIT
    tombstone: Tombstone | None = None
    followed: int = 0  # in a reprocessed table: the last version of the other table that was handled again
    # In a reprocessed table: whether the followed versions are this stream's too, and only the other table stores them.
    shared: bool = False

    @property
    def refuses(self) -> bool:
        """Whether the object was forgotten and now rejects all messages."""
        return self.tombstone is not None and self.tombstone.refuses

    def is_too_late(self, enqueued_at: int | None) -> bool:
        """Return whether a message without a stored version may be a duplicate of a truncated message.

        `enqueued_at` is in microseconds since 1970 UTC. For a message without this time (None), returns `undated_cut`.
        """
        if enqueued_at is None:
            return self.undated_cut
        return self.horizon is not None and enqueued_at <= self.horizon

    def properties(self) -> Properties:
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
        if self.followed:
            properties["Followed"] = Int64(self.followed)
        if self.shared:
            properties["Shared"] = True
        if self.tail is not None:
            typed.split(properties, _TAIL, self.tail.pack())
        return properties


class NewestState(NamedTuple):
    """The newest state of a stream, upcast to the current schema version of its class."""

    encoded: bytes = b""
    schema: int = 1


def is_of_state(properties: Properties) -> bool:
    """Return whether a header belongs to a state stream, even if the header lacks one of its properties."""
    return "StateVersions" in properties or "StateSchema" in properties


def read_head(properties: Properties) -> Head:
    """Decode the head from the properties of a header. Raises `StoredDataError` if the properties are corrupt."""
    with typed.reading("The header of the stream", HEADER):
        head = Head(
            state=expect(properties.get("State"), bytes, None),
            schema=typed.number(properties, "StateSchema", most=typed.INT32),
            versions=typed.number(properties, "StateVersions"),
            kept_from=typed.number(properties, "KeptFrom", 1),
            last_now=typed.microseconds(properties, "LastNow") or 0,
            horizon=typed.microseconds(properties, "Horizon"),
            undated_cut=expect(properties.get("UndatedCut", False), bool),
            tail=read_tail(typed.join(properties, _TAIL)) if _TAIL[0] in properties else None,
            waiting=read_waiting(properties),
            tombstone=read_tombstone(properties),
            followed=typed.number(properties, "Followed", 0),
            shared=expect(properties.get("Shared", False), bool),
        )
        if head.schema < 1 or not 1 <= head.kept_from <= head.versions + 1:
            raise ValueError(f"schema {head.schema}, {head.versions} versions, kept from {head.kept_from}")
        last = head.versions if head.tail is None else head.tail.first + head.tail.count - 1
        if last != head.versions:
            raise ValueError(f"its tail ends with version {last} of {head.versions}")
    return head
