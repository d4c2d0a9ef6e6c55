"""Digests of sets of rows: the same in whatever order the rows come, as stores order keys differently."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from uuid import UUID

import msgpack

from eventstore import Int64, Row, Value
from runtime.clock import to_microseconds

_MODULUS = 2**256
_INT64, _DATETIME, _UUID = 1, 2, 3


class SetDigest:
    """Counts the members of a set, and adds up their digests. Finds accidents, not forgeries."""

    __slots__ = ("_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SetDigest) and (self.count, self._sum) == (other.count, other._sum)

    __hash__ = None  # type: ignore[assignment] # it changes

    def add(self, member: bytes) -> None:
        """Add a member."""
        self.count += 1
        self._sum = (self._sum + int.from_bytes(sha256(member).digest())) % _MODULUS

    def update(self, other: SetDigest) -> None:
        """Add all members of another set."""
        self.count += other.count
        self._sum = (self._sum + other._sum) % _MODULUS

    def hexdigest(self) -> str:
        """Return the digest as hexadecimal digits."""
        return f"{self._sum:064x}"


def packed_row(row: Row) -> bytes:
    """Return a row without its ETag: equal for equal keys and properties, types included, whatever their order."""
    properties = [part for item in sorted(row.properties.items()) for part in item]
    parts = [row.partition_key, row.row_key, *properties]
    packed: bytes = msgpack.packb(parts, default=_to_extension, strict_types=True)
    return packed


def written_row(row: Row) -> bytes:
    """Return what is the same for two readings of a row exactly if nobody wrote it in between."""
    packed: bytes = msgpack.packb((row.partition_key, row.row_key, row.etag))
    return packed


def _to_extension(value: Value) -> object:
    if isinstance(value, Int64):
        return msgpack.ExtType(_INT64, value.to_bytes(8, "big", signed=True))
    if isinstance(value, datetime):
        return msgpack.ExtType(_DATETIME, to_microseconds(value).to_bytes(8, "big", signed=True))
    if isinstance(value, UUID):
        return msgpack.ExtType(_UUID, value.bytes)
    raise TypeError(f"A {type(value).__name__} is no property of a row.")
