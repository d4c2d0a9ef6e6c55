"""Runs: consecutive state versions that are stored together in one event.

A run starts with the state before its first version, so that it can be read and replayed, and older runs
deleted, without the others. Message ids stand in a property of their own, so that "is this message known?" is
answered without reading states; the rest is msgpack, column by column, compressed with zstandard.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack
import zstandard

from eventstore import EventData, Int64, Properties, RecordedEvent, Value
from runtime import fingerprint
from runtime.envelope import to_datetime, to_microseconds
from runtime.errors import RunCorruptError
from runtime.message_ids import IdKey, pack_ids, unpack_ids
from runtime.properties import microseconds, number, text, time

FORMAT = 1
MAX_VERSIONS = 8192
MAX_RAW_BYTES = 8 * 2**20
MAX_DATA_BYTES = 700 * 2**10
CHUNK = 64 * 2**10
ID_CHUNKS = 4
MAX_ID_BYTES = ID_CHUNKS * CHUNK - 16

DIGEST = fingerprint.SIZE
_MAX_UNPACKED = 64 * 2**20
_LEVEL = 3


def _chunk_names(name: str, count: int) -> list[str]:
    return [name, *(f"{name}{number}" for number in range(1, count))]


ID_PROPERTIES = _chunk_names("Ids", ID_CHUNKS)
DATA_PROPERTIES = _chunk_names("Data", 14)
INDEX_PROPERTIES = ["First", "Count", "Batch", "WrittenAt", "Newest", "Undated", *ID_PROPERTIES]
"""What a projected read asks for: everything but the states."""


class StateVersion(NamedTuple):
    """What is recorded of one version.

    `now` and `enqueued_at` are microseconds since 1970 UTC; `after` is the encoded state, None when the message
    did not change it; `captured` and `headers` are None when there are none.
    """

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
    after: bytes | None

    def raw_size(self) -> int:
        """Return about how many bytes the version takes before compression."""
        captured = sum(4 * len(name) + len(value) for name, value in (self.captured or {}).items())
        headers = sum(len(name) + len(value) for name, value in (self.headers or {}).items())
        return 80 + len(self.type) + len(self.after or b"") + captured + 4 * headers


@dataclass(frozen=True, slots=True)
class RunIndex:
    """What is known of a stored run without its states.

    `event` is the version of its event in the stream, `first` the number of its first state version. `newest` is
    the newest `enqueued_at` among them, `undated` says that one had none. Times as in `StateVersion`.
    """

    event: int
    first: int
    ids: Sequence[IdKey]
    batch: str | None
    written_at: int
    newest: int | None
    undated: bool

    @property
    def last(self) -> int:
        """The number of the last state version."""
        return self.first + len(self.ids) - 1


@dataclass(frozen=True, slots=True)
class Run:
    """State versions with the state before them, in one schema version."""

    first: int
    batch: str | None
    written_at: int
    schema: int
    before: bytes
    versions: Sequence[StateVersion]

    def states_before(self) -> list[bytes]:
        """Return, for each version, the encoded state on which it was made."""
        state = self.before
        states = []
        for version in self.versions:
            states.append(state)
            state = state if version.after is None else version.after
        return states

    def data(self) -> bytes:
        """Return the compressed columns of the run."""
        return _compress(_pack(self))

    def event(self, data: bytes | None = None) -> EventData:
        """Return the run as an event to write; `data` are its compressed columns, when the caller has them.

        Raises `ValueError` when a row cannot hold it.
        """
        versions = self.versions
        dated = [version.enqueued_at for version in versions if version.enqueued_at is not None]
        properties: dict[str, Value] = {
            "First": Int64(self.first),
            "Count": len(versions),
            "WrittenAt": to_datetime(self.written_at),
            "Undated": len(dated) < len(versions),
        }
        if self.batch is not None:
            properties["Batch"] = self.batch
        if dated:
            properties["Newest"] = to_datetime(max(dated))
        _split(properties, ID_PROPERTIES, pack_ids([version.message_id for version in versions]))
        _split(properties, DATA_PROPERTIES, self.data() if data is None else data)
        return EventData(properties)


def read_index(event: RecordedEvent) -> RunIndex:
    """Return what a run's row says without its states. Raises `RunCorruptError`."""
    properties = event.properties
    try:
        index = RunIndex(
            event=event.version,
            first=number(properties, "First"),
            ids=unpack_ids(_join(properties, ID_PROPERTIES)),
            batch=text(properties, "Batch") if "Batch" in properties else None,
            written_at=to_microseconds(time(properties, "WrittenAt")),
            newest=microseconds(properties, "Newest"),
            undated=bool(properties["Undated"]),
        )
        count = number(properties, "Count")
    except (KeyError, ValueError, TypeError, msgpack.UnpackException) as error:
        message = f"Event {event.version} is no readable run of state versions: {error!r}."
        raise RunCorruptError(message) from error
    if len(index.ids) != count:
        message = f"Event {event.version} holds {len(index.ids)} message ids for {count} versions."
        raise RunCorruptError(message)
    return index


def read_run(event: RecordedEvent) -> Run:
    """Return a run with its states. Raises `RunCorruptError`."""
    index = read_index(event)
    try:
        return _unpack(index, _decompress(_join(event.properties, DATA_PROPERTIES)))
    except (
        KeyError,
        ValueError,
        TypeError,
        IndexError,
        zstandard.ZstdError,
        msgpack.UnpackException,
    ) as error:
        message = f"Event {event.version} is no readable run of state versions: {error!r}."
        raise RunCorruptError(message) from error


def _pack(run: Run) -> bytes:
    versions = run.versions
    start = versions[0].now
    columns = (
        FORMAT,
        run.schema,
        run.before,
        [version.type for version in versions],
        b"".join(version.fingerprint for version in versions),
        b"".join(version.outputs_digest for version in versions),
        b"".join(version.state_digest for version in versions),
        start,
        [version.now - start for version in versions],
        _deltas([version.enqueued_at for version in versions]),
        _unless_empty([version.headers for version in versions]),
        _unless_empty([version.captured for version in versions]),
        [version.revision for version in versions],
        [version.after for version in versions],
    )
    packed: bytes = msgpack.packb(columns)
    return packed


def _unpack(index: RunIndex, data: bytes) -> Run:
    columns = msgpack.unpackb(data, strict_map_key=False)
    if columns[0] != FORMAT:
        message = f"format {columns[0]} is unknown; this code reads format {FORMAT}"
        raise ValueError(message)
    (_, schema, before, types, prints, outputs, states, start, nows, enqueued, headers, captured, revisions,
     afters) = columns  # fmt: skip
    count = len(index.ids)
    versions = [
        StateVersion(*fields)
        for fields in zip(
            index.ids,
            types,
            _digests(prints),
            [start + delta for delta in nows],
            _undeltas(enqueued),
            headers or [None] * count,
            captured or [None] * count,
            revisions,
            _digests(outputs),
            _digests(states),
            afters,
            strict=True,
        )
    ]
    return Run(index.first, index.batch, index.written_at, schema, before, versions)


def _deltas(moments: Sequence[int | None]) -> list[int | None]:
    previous = 0
    deltas: list[int | None] = []
    for moment in moments:
        deltas.append(None if moment is None else moment - previous)
        previous = previous if moment is None else moment
    return deltas


def _undeltas(deltas: Sequence[int | None]) -> list[int | None]:
    previous = 0
    moments: list[int | None] = []
    for delta in deltas:
        previous += delta or 0
        moments.append(None if delta is None else previous)
    return moments


def _unless_empty(values: list[Any]) -> list[Any] | None:
    return values if any(values) else None


def _digests(joined: bytes) -> list[bytes]:
    return [joined[at : at + DIGEST] for at in range(0, len(joined), DIGEST)]


def _split(properties: dict[str, Value], names: Sequence[str], data: bytes) -> None:
    if len(data) > len(names) * CHUNK:
        message = f"{len(data)} bytes are more than a row of a run can hold"
        raise ValueError(message)
    for name, at in zip(names, range(0, len(data), CHUNK), strict=False):
        properties[name] = data[at : at + CHUNK]


def _join(properties: Properties, names: Sequence[str]) -> bytes:
    first = properties[names[0]]
    if names[1] not in properties:
        return first  # type: ignore[return-value] # bytes were written
    return b"".join(properties[name] for name in names if name in properties)  # type: ignore[misc] # as above


class _Zstandard(threading.local):
    """A compressor and a decompressor for each thread: making them costs more than a small run."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        self.decompressor = zstandard.ZstdDecompressor()


_zstandard = _Zstandard()


def _compress(data: bytes) -> bytes:
    return _zstandard.compressor.compress(data)


def _decompress(data: bytes) -> bytes:
    size = zstandard.frame_content_size(data)
    if not 0 <= size <= _MAX_UNPACKED:
        message = f"{size} bytes after decompression are more than a run can have"
        raise ValueError(message)
    return _zstandard.decompressor.decompress(data, max_output_size=_MAX_UNPACKED)
