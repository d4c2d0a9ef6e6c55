"""State versions as they are stored, column by column: similar values are adjacent, and compress well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgpack
import zstandard

from runtime.messages import fingerprint
from runtime.messages.message_ids import IdKey

FORMAT = 2
DIGEST = fingerprint.SIZE

UNREADABLE = (
    KeyError,
    ValueError,
    TypeError,
    IndexError,
    AttributeError,
    zstandard.ZstdError,
    msgpack.UnpackException,
)
"""What reading damaged bytes may raise."""


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
        size = 80 + len(self.type)
        if self.after is not None:
            size += len(self.after)
        if self.captured:
            size += sum(4 * len(name) + len(value) for name, value in self.captured.items())
        if self.headers:
            size += 4 * sum(len(name) + len(value) for name, value in self.headers.items())
        return size


class Columns(NamedTuple):
    """What is compressed of some versions; `before` is None where the state before them is known already."""

    schema: int
    before: bytes | None
    versions: list[StateVersion]


def pack_columns(schema: int, before: bytes | None, versions: Sequence[StateVersion]) -> bytes:
    """Return versions column by column."""
    start = versions[0].now
    columns = (
        FORMAT,
        schema,
        before,
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


def unpack_columns(data: bytes, ids: Sequence[IdKey]) -> Columns:
    """Return the versions with these message ids. Raises one of `UNREADABLE`."""
    columns = msgpack.unpackb(data, strict_map_key=False)
    if columns[0] != FORMAT:
        message = f"format {columns[0]} is unknown; this code reads format {FORMAT}"
        raise ValueError(message)
    (_, schema, before, types, fingerprints, outputs, states, start, nows, enqueued, headers, captured, revisions,
     afters) = columns  # fmt: skip
    count = len(ids)
    versions = [
        StateVersion(*fields)
        for fields in zip(
            ids,
            types,
            _digests(fingerprints),
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
    return Columns(schema, before, versions)


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
