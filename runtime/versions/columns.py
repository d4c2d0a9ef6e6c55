"""Versions stored column by column: similar values are adjacent, and compress well."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import sub
from typing import Any, NamedTuple

import msgpack
import zstandard

from handlers import Published
from handlers.codec import unpack
from runtime.messages.digests import SIZE, digest_outputs, digest_state
from runtime.messages.envelope import Columnar, IdKey, pieces, without_trace
from runtime.messages.parsing import Deliveries
from runtime.versions import limits
from runtime.versions.properties import expect, expect_all

FORMAT = 2


class StateVersion(NamedTuple):
    """The record of one version. Times are in microseconds since 1970 UTC."""

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
    """Versions by column: each list holds one field of `StateVersion`."""

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
        """Return the encoded state before each version. `state`: the one before the first."""
        states = []
        for after in self.afters:
            states.append(state)
            state = state if after is None else after
        return states

    def after(self, state: bytes) -> bytes:
        """Return the encoded state after the last version. `state`: the one before the first."""
        return next((after for after in reversed(self.afters) if after is not None), state)


def size_beside_state(
    type_: str, headers: Mapping[str, str] | None, captured: Mapping[str, bytes] | None
) -> int:
    """Estimate the bytes of a version before compression, without its state."""
    size = 80 + len(type_)
    if captured:
        size += sum(4 * len(name) + len(value) for name, value in captured.items())
    if headers:
        size += 4 * sum(len(name) + len(value) for name, value in headers.items())
    return size


class Columns(NamedTuple):
    """The decoded columns of some versions."""

    schema: int
    before: bytes | None  # the state before them; None in a segment, where it follows from the one before
    versions: VersionColumns


def pack_columns(schema: int, before: bytes | None, versions: VersionColumns) -> bytes:
    """Encode versions by column, without their ids."""
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
    """Decode the versions that messages with these ids made. Raises one of `properties.UNREADABLE`."""
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
    # The common case, without missing times, is faster.
    if None not in moments:
        return list(map(sub, moments, (0, *moments)))
    previous = 0
    deltas: list[int | None] = []
    for moment in moments:
        deltas.append(None if moment is None else moment - previous)
        previous = previous if moment is None else moment
    return deltas


def _mappings(column: Any, kind: type) -> list[Any] | None:  # noqa: ANN401 - as it was stored
    """Return a column of dicts with text keys and values of `kind`, or `None` if it is empty. Raises `TypeError`."""
    for mapping in filter(None, expect_all(column, dict, None) if column else ()):
        expect_all(list(mapping), str), expect_all(list(mapping.values()), kind)
    return column or None


# zstandard: a checksum detects corruption, and the decompressed size is bounded.

_LEVEL = 3
_MIN_DICTIONARY = 512  # a smaller one is not worth its overhead
_MAX_BYTES = 2 * limits.MAX_RUN_RAW_BYTES
"""Larger than the limit of a run, which the last version and the state before the first may exceed."""


class _Zstandard(threading.local):
    """A compressor and a decompressor per thread, because making them costs more than compressing a small run."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        self.decompressor = zstandard.ZstdDecompressor()


_zstandard = _Zstandard()


def compress(data: bytes, dictionary: bytes = b"") -> bytes:
    """Compress bytes. Text that also occurs in the dictionary takes almost no space."""
    if len(dictionary) < _MIN_DICTIONARY:
        return _zstandard.compressor.compress(data)
    known = zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdCompressor(level=_LEVEL, dict_data=known, write_checksum=True).compress(data)


def decompress(data: bytes, dictionary: bytes = b"") -> bytes:
    """Decompress bytes with the dictionary of `compress`. Raises `ValueError` and `ZstdError`."""
    size = zstandard.frame_content_size(data)
    if not 0 <= size <= _MAX_BYTES:
        raise ValueError(f"{size} bytes after decompression exceed the limit of a run")
    if len(dictionary) < _MIN_DICTIONARY:
        return _zstandard.decompressor.decompress(data, max_output_size=_MAX_BYTES)
    known = zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdDecompressor(dict_data=known).decompress(data, max_output_size=_MAX_BYTES)


class Made(NamedTuple):
    """The result of one handler call, except the state. `position`: the position of the delivery."""

    position: int
    now: int
    revision: int
    captured: Mapping[str, bytes] | None
    published: Sequence[Published]


@dataclass(slots=True)
class MadeColumns(Columnar[Made]):
    """Results of handler calls by column: each list holds one field of `Made`."""

    row = Made

    positions: list[int] = field(default_factory=list)
    nows: list[int] = field(default_factory=list)
    revisions: list[int] = field(default_factory=list)
    captured: list[Mapping[str, bytes] | None] = field(default_factory=list)
    published: list[Sequence[Published]] = field(default_factory=list)


def version_columns(deliveries: Deliveries, made: MadeColumns, states: Sequence[bytes]) -> VersionColumns:
    """Make the records of consecutive versions. `states`: encoded, before the first version and after each."""
    envelopes, positions = deliveries.envelopes, made.positions
    return VersionColumns(
        _at(positions, deliveries.keys),
        _at(positions, envelopes.types),
        _at(positions, deliveries.fingerprints),
        list(made.nows),
        _at(positions, envelopes.enqueued_at),
        [without_trace(dict(each)) if each else None for each in _at(positions, envelopes.headers)],
        list(made.captured),
        list(made.revisions),
        list(map(digest_outputs, made.published)),
        list(map(digest_state, states[1:])),
        [None if after == before else after for before, after in pairwise(states)],
    )


def _at(positions: Sequence[int], column: Sequence[Any]) -> list[Any]:
    """Return the values at ascending positions."""
    # Nearly always they are contiguous, and a slice is fastest.
    first, last = positions[0], positions[-1]
    if last - first + 1 == len(positions):
        return list(column[first : last + 1])
    return [column[position] for position in positions]
