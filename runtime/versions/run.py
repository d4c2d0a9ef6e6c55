"""Runs: consecutive versions of a stream, stored together in one event.

A run contains the state before its first version. So a run can be read and replayed without other runs, and older runs
can be deleted. The versions of a run may come from several commits.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import sub
from typing import Any, NamedTuple

import msgpack
import zstandard

from eventstore import EventData, Int64, RecordedEvent, Value
from eventstore.header import EVENT
from handlers.codec import unpack
from runtime.clock import to_datetime
from runtime.messages import envelope
from runtime.messages.envelope import SIZE, Columnar, IdKey, pieces
from runtime.versions import limits
from runtime.versions import properties as typed
from runtime.versions.limits import ID_CHUNKS
from runtime.versions.properties import expect, expect_all

FORMAT = 2


class StateVersion(NamedTuple):
    """The recorded fields of one version. Times are in microseconds since 1970 UTC."""

    message_id: IdKey
    type: str
    fingerprint: bytes
    now: int
    enqueued_at: int | None
    headers: Mapping[str, str] | None
    captured: Mapping[str, bytes] | None
    revision: int
    outputs_digest: bytes
    state_digest: bytes
    after: bytes | None  # the encoded state; None: unchanged


@dataclass(slots=True)
class VersionColumns(Columnar[StateVersion]):
    """Versions by column: one list for each field of `StateVersion`."""

    row = StateVersion

    message_ids: list[IdKey] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    fingerprints: list[bytes] = field(default_factory=list)
    nows: list[int] = field(default_factory=list)
    enqueued_at: list[int | None] = field(default_factory=list)
    headers: list[Mapping[str, str] | None] = field(default_factory=list)
    captured: list[Mapping[str, bytes] | None] = field(default_factory=list)
    revisions: list[int] = field(default_factory=list)
    outputs_digests: list[bytes] = field(default_factory=list)
    state_digests: list[bytes] = field(default_factory=list)
    afters: list[bytes | None] = field(default_factory=list)

    def states_before(self, state: bytes) -> list[bytes]:
        states = []
        for after in self.afters:
            states.append(state)
            state = state if after is None else after
        return states

    def after(self, state: bytes) -> bytes:
        """Return the encoded state after the last version. `state` is the state before the first version."""
        return next((after for after in reversed(self.afters) if after is not None), state)


def size_beside_state(
    type_: str, headers: Mapping[str, str] | None, captured: Mapping[str, bytes] | None
) -> int:
    """Estimate the size of a version without its state, in bytes before compression."""
    size = 80 + len(type_)
    if captured:
        size += sum(4 * len(name) + len(value) for name, value in captured.items())
    if headers:
        size += 4 * sum(len(name) + len(value) for name, value in headers.items())
    return size


class Columns(NamedTuple):
    """The decoded columns of a run or segment."""

    schema: int
    before: bytes | None  # the state before the versions; None in a segment, which follows other versions
    versions: VersionColumns


def pack_columns(schema: int, before: bytes | None, versions: VersionColumns) -> bytes:
    """Encode versions by column, without ids. `before` is the encoded state before them, or `None` in a segment."""
    start = versions.nows[0]
    columns = (
        FORMAT,
        schema,
        before,
        versions.types,
        b"".join(versions.fingerprints),
        b"".join(versions.outputs_digests),
        b"".join(versions.state_digests),
        start,
        [now - start for now in versions.nows],
        _deltas(versions.enqueued_at),
        versions.headers if any(versions.headers) else None,
        versions.captured if any(versions.captured) else None,
        versions.revisions,
        versions.afters,
    )
    packed: bytes = msgpack.packb(columns)
    return packed


def unpack_columns(data: bytes, ids: list[IdKey]) -> Columns:
    """Decode the columns that `pack_columns` encoded, given their `ids`. Raises one of `properties.UNREADABLE`."""
    columns = unpack(data, strict_map_key=False)
    if columns[0] != FORMAT:
        raise ValueError(f"format {columns[0]} is unknown; this code reads format {FORMAT}")
    (_, schema, before, types, fingerprints, outputs, states, start, nows, enqueued, headers, captured, revisions,
     afters) = columns  # fmt: skip
    count, start = len(ids), expect(start, int)
    deltas = expect_all(enqueued, int, None)
    moments = accumulate(delta or 0 for delta in deltas)
    versions = VersionColumns(
        ids,
        expect_all(types, str),
        pieces(expect(fingerprints, bytes), SIZE),
        [start + delta for delta in expect_all(nows, int)],
        [None if delta is None else moment for delta, moment in zip(deltas, moments, strict=True)],
        _mappings(headers, str) or [None] * count,
        _mappings(captured, bytes) or [None] * count,
        expect_all(revisions, int),
        pieces(expect(outputs, bytes), SIZE),
        pieces(expect(states, bytes), SIZE),
        expect_all(afters, bytes, None),
    )
    lengths = {len(column) for column in versions.columns()}
    if lengths != {count}:
        raise ValueError(f"its columns have {sorted(lengths)} values for {count} message ids")
    return Columns(expect(schema, int), expect(before, bytes, None), versions)


def _deltas(moments: Sequence[int | None]) -> list[int | None]:
    if None not in moments:  # the common case, for which this is faster
        return list(map(sub, moments, (0, *moments)))
    previous = 0
    deltas: list[int | None] = []
    for moment in moments:
        deltas.append(None if moment is None else moment - previous)
        previous = previous if moment is None else moment
    return deltas


def _mappings(column: Any, kind: type) -> list[Any] | None:  # noqa: ANN401 - as it was stored
    """Return a column, or `None` if it is empty. Raises `TypeError` if its dicts do not map text to `kind`."""
    for mapping in filter(None, expect_all(column, dict, None) if column else ()):
        expect_all(list(mapping), str), expect_all(list(mapping.values()), kind)
    return column or None


_LEVEL = 3
_MIN_DICTIONARY = 512  # a smaller dictionary is not worth its overhead
# More than the limit of a run, which the last version and the state before the first may exceed.
_MAX_BYTES = 2 * limits.MAX_RUN_RAW_BYTES


class _Zstandard(threading.local):
    """A compressor and a decompressor per thread. Creating them takes longer than compressing a small run."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        self.decompressor = zstandard.ZstdDecompressor()


_zstandard = _Zstandard()


def compress(data: bytes, dictionary: bytes = b"") -> bytes:
    """Compress bytes, with a checksum. Content that the dictionary contains takes almost no space."""
    if len(dictionary) < _MIN_DICTIONARY:
        return _zstandard.compressor.compress(data)
    known = zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdCompressor(level=_LEVEL, dict_data=known, write_checksum=True).compress(data)


def decompress(data: bytes, dictionary: bytes = b"") -> bytes:
    """Decompress bytes, with the dictionary given to `compress`. Raises `ZstdError`, or `ValueError` if too large."""
    size = zstandard.frame_content_size(data)
    if not 0 <= size <= _MAX_BYTES:
        raise ValueError(f"{size} bytes after decompression exceed the limit of a run")
    if len(dictionary) < _MIN_DICTIONARY:
        return _zstandard.decompressor.decompress(data, max_output_size=_MAX_BYTES)
    known = zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdDecompressor(dict_data=known).decompress(data, max_output_size=_MAX_BYTES)


ID_PROPERTIES = typed.chunk_names("Ids", ID_CHUNKS)
DATA_PROPERTIES = typed.chunk_names("Data", 14)
INDEX_PROPERTIES = ["First", "Count", "Commits", "Newest", "Undated"]  # all but ids and versions
RUN_PROPERTIES = [*INDEX_PROPERTIES, *ID_PROPERTIES, *DATA_PROPERTIES]


class Commit(NamedTuple):
    """The versions that one transaction stored. `written_at` is in microseconds since 1970 UTC."""

    length: int
    batch: str | None  # None: single messages
    written_at: int
    number: int | None = None  # of the batch, or of the consumer batch of single messages, if any


@dataclass(frozen=True, slots=True)
class RunIndex:
    """The description of a stored run, without ids and states. Times are in microseconds since 1970 UTC."""

    event: int  # the number of the run's event
    first: int  # the number of the first version
    count: int
    commits: Sequence[Commit]
    newest: int | None  # the newest `enqueued_at`
    undated: bool  # whether any message has no `enqueued_at`

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    @property
    def written_at(self) -> int:
        """The time of the last commit."""
        return max(commit.written_at for commit in self.commits)


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive versions in one schema version, with the encoded state before them."""

    first: int
    schema: int
    before: bytes
    versions: VersionColumns
    commits: Sequence[Commit]

    @property
    def last(self) -> int:
        return self.first + len(self.versions) - 1

    @property
    def ids(self) -> list[IdKey]:
        return self.versions.message_ids

    @property
    def after(self) -> bytes:
        """The encoded state after the last version."""
        return self.versions.after(self.before)

    def states_before(self) -> list[bytes]:
        return self.versions.states_before(self.before)

    def all(self) -> list[Version]:
        """Return the versions, oldest first."""
        commits = [commit for commit in self.commits for _ in range(commit.length)]
        rows = zip(self.versions, self.states_before(), commits, strict=True)
        return [
            Version(number, row, before, before if row.after is None else row.after, self.schema, *commit[1:])
            for number, (row, before, commit) in enumerate(rows, self.first)
        ]

    def data(self) -> bytes:
        return compress(pack_columns(self.schema, self.before, self.versions))

    def event(self, data: bytes | None = None) -> EventData:
        """Encode the run as an event, with `data` or else `self.data()`. Raises `ValueError` if that is too large."""
        newest, undated = dates(self.versions.enqueued_at)
        properties: dict[str, Value] = {
            "First": Int64(self.first),
            "Count": len(self.versions),
            # A missing batch number takes no space.
            "Commits": msgpack.packb([each[:3] if each.number is None else each for each in self.commits]),
            "Undated": undated,
        }
        if newest is not None:
            properties["Newest"] = to_datetime(newest)
        typed.split(properties, ID_PROPERTIES, envelope.pack_ids(self.ids))
        typed.split(properties, DATA_PROPERTIES, self.data() if data is None else data)
        return EventData(properties)


def dates(enqueued_at: Sequence[int | None]) -> tuple[int | None, bool]:
    """Return the latest time (`None` if all are missing), and whether any time is missing."""
    dated = [moment for moment in enqueued_at if moment is not None]
    return max(dated, default=None), len(dated) < len(enqueued_at)


def read_index(event: RecordedEvent) -> RunIndex:
    """Decode a run without its ids and states. Raises `StoredDataError` if the event is corrupt."""
    properties = event.properties
    with _reading(event):
        commits = [Commit(*fields) for fields in unpack(expect(properties["Commits"], bytes))]
        for each in commits:
            expect(each.length, int), expect(each.batch, str, None)
            expect(each.written_at, int), expect(each.number, int, None)
        index = RunIndex(
            event=event.version,
            first=typed.number(properties, "First"),
            count=typed.number(properties, "Count", most=typed.INT32),
            commits=commits,
            newest=typed.microseconds(properties, "Newest"),
            undated=expect(properties["Undated"], bool),
        )
        if index.first < 1 or any(commit.length < 1 for commit in commits):
            raise ValueError(f"its first version is {index.first}, and its commits have {commits}")
        counted = sum(commit.length for commit in commits)
        if counted != index.count:
            raise ValueError(f"its commits have {counted} versions instead of {index.count}")
    return index


def read_ids(event: RecordedEvent) -> list[IdKey]:
    """Decode the message ids of a run. Raises `StoredDataError` if the ids are corrupt."""
    index = read_index(event)
    with _reading(event):
        ids = envelope.unpack_ids(typed.join(event.properties, ID_PROPERTIES))
        if len(ids) != index.count:
            raise ValueError(f"it holds {len(ids)} message ids for {index.count} versions")
    return ids


def read_run(event: RecordedEvent) -> Run:
    """Decode a run. Raises `StoredDataError` if the event is corrupt."""
    index, ids = read_index(event), read_ids(event)
    with _reading(event):
        columns = unpack_columns(decompress(typed.join(event.properties, DATA_PROPERTIES)), ids)
    return Run(index.first, columns.schema, columns.before or b"", columns.versions, index.commits)


def _reading(event: RecordedEvent) -> typed.reading:
    return typed.reading(f"The run in event {event.version}", f"{EVENT}{event.version:010d}")


class Version(NamedTuple):
    """One version of a stream."""

    number: int
    record: StateVersion
    before: bytes  # the encoded state before the version
    after: bytes  # the encoded state after the version
    schema: int
    batch: str | None  # None: a single message
    written_at: int | None = None  # in microseconds since 1970 UTC; None: after the stream was loaded
    batch_number: int | None = None  # see `Commit`

    @property
    def message_id(self) -> str:
        return envelope.id_text(self.record.message_id)
