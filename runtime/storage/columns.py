"""State versions as they are stored, column by column: similar values are adjacent, and compress well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import sub
from typing import Any, NamedTuple

import msgpack

from handlers.unpacking import unpack
from runtime.columnar import Columnar, pieces
from runtime.messages import fingerprint
from runtime.messages.message_ids import IdKey
from runtime.storage.damage import expect, expect_all

FORMAT = 2
DIGEST = fingerprint.SIZE


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


@dataclass(slots=True)
class VersionColumns(Columnar[StateVersion]):
    """Versions, column by column: each list has one field of `StateVersion` for all of them."""

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
        """Return, for each version, the encoded state on which it was made; the first was made on `state`."""
        states = []
        for after in self.afters:
            states.append(state)
            state = state if after is None else after
        return states

    def after(self, state: bytes) -> bytes:
        """Return the encoded state after the last version, when the first was made on `state`."""
        return next((after for after in reversed(self.afters) if after is not None), state)


def size_beside_state(
    type_: str, headers: Mapping[str, str] | None, captured: Mapping[str, bytes] | None
) -> int:
    """Return about how many bytes a version takes before compression, without the state after it."""
    size = 80 + len(type_)
    if captured:
        size += sum(4 * len(name) + len(value) for name, value in captured.items())
    if headers:
        size += 4 * sum(len(name) + len(value) for name, value in headers.items())
    return size


class Columns(NamedTuple):
    """What is compressed of some versions; `before` is None where the state before them is known already."""

    schema: int
    before: bytes | None
    versions: VersionColumns


def pack_columns(schema: int, before: bytes | None, versions: VersionColumns) -> bytes:
    """Return versions column by column, but for their ids."""
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
        _unless_empty(versions.headers),
        _unless_empty(versions.captured),
        versions.revisions,
        versions.afters,
    )
    packed: bytes = msgpack.packb(columns)
    return packed


def unpack_columns(data: bytes, ids: list[IdKey]) -> Columns:
    """Return the versions with these message ids. Raises one of `damage.UNREADABLE`."""
    columns = unpack(data, strict_map_key=False)
    if columns[0] != FORMAT:
        message = f"format {columns[0]} is unknown; this code reads format {FORMAT}"
        raise ValueError(message)
    (_, schema, before, types, fingerprints, outputs, states, start, nows, enqueued, headers, captured, revisions,
     afters) = columns  # fmt: skip
    count, start = len(ids), expect(start, int)
    versions = VersionColumns(
        ids,
        expect_all(types, str),
        pieces(expect(fingerprints, bytes), DIGEST),
        [start + delta for delta in expect_all(nows, int)],
        _undeltas(expect_all(enqueued, int, None)),
        _mappings(headers, str) or [None] * count,
        _mappings(captured, bytes) or [None] * count,
        expect_all(revisions, int),
        pieces(expect(outputs, bytes), DIGEST),
        pieces(expect(states, bytes), DIGEST),
        expect_all(afters, bytes, None),
    )
    lengths = {len(column) for column in versions.columns()}
    if lengths != {count}:
        message = f"its columns have {sorted(lengths)} values for {count} message ids"
        raise ValueError(message)
    return Columns(expect(schema, int), expect(before, bytes, None), versions)


def count_columns(data: bytes) -> int:
    """Return how many versions there are column by column. Raises one of `damage.UNREADABLE`."""
    _, _, _, types, *_ = unpack(data, strict_map_key=False)
    return len(expect(types, list))


def _deltas(moments: Sequence[int | None]) -> list[int | None]:
    if None not in moments:
        return list(map(sub, moments, (0, *moments)))
    previous = 0
    deltas: list[int | None] = []
    for moment in moments:
        deltas.append(None if moment is None else moment - previous)
        previous = previous if moment is None else moment
    return deltas


def _undeltas(deltas: Sequence[int | None]) -> list[int | None]:
    moments = accumulate(delta or 0 for delta in deltas)
    return [None if delta is None else moment for delta, moment in zip(deltas, moments, strict=True)]


def _unless_empty(values: list[Any]) -> list[Any] | None:
    return values if any(values) else None


def _mappings(column: Any, kind: type) -> list[Any] | None:  # noqa: ANN401 - as it was stored
    """Return a column of mappings from text, None when it was not stored. Raises `TypeError`."""
    for mapping in filter(None, expect_all(column, dict, None) if column else ()):
        expect_all(list(mapping), str), expect_all(list(mapping.values()), kind)
    return column or None
