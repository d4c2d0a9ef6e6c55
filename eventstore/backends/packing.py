"""Typed properties as bytes: msgpack, with extension types for what it lacks.

A row becomes two byte strings. `small` holds all properties but the large binary ones. `large` holds
those, one after the other, the shortest first, and `small` then says where each one is: a reader that
wants none of them, or only the first ones, need not read the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgpack

from eventstore.limits import MAX_BINARY_BYTES, MAX_PROPERTIES, MAX_STRING_UNITS
from eventstore.port import Int64, Value

LARGE_BYTES = 512
"""A binary property over this size is a large one."""

_INT64, _DATETIME, _UUID = 1, 2, 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NO_PLACES: dict[str, int] = {}


class Packer:
    """Packs properties. Belongs to one thread."""

    __slots__ = ("_pack",)

    def __init__(self) -> None:
        self._pack = msgpack.Packer(default=_to_extension, strict_types=True).pack

    def pack(self, properties: Mapping[str, Value]) -> tuple[bytes, bytes | None]:
        """Return the small and the large part of a row."""
        large = [
            (len(value), name, value)
            for name, value in properties.items()
            if type(value) is bytes and len(value) > LARGE_BYTES
        ]
        if not large:
            return self._pack(properties), None
        large.sort()
        places = {name: length for length, name, _ in large}
        small = {name: value for name, value in properties.items() if name not in places}
        return self._pack([small, places]), b"".join([value for _, _, value in large])


def unpack_small(small: bytes) -> tuple[dict[str, Value], dict[str, int]]:
    """Return the small properties, and the lengths of the large ones in the order of their bytes."""
    unpacked = msgpack.unpackb(
        small,
        ext_hook=_from_extension,
        max_str_len=4 * MAX_STRING_UNITS,
        max_bin_len=MAX_BINARY_BYTES,
        max_array_len=2,
        max_map_len=MAX_PROPERTIES,
        max_ext_len=16,
    )
    if type(unpacked) is dict:
        return unpacked, _NO_PLACES
    properties, places = unpacked
    return properties, places


def unpack(small: bytes, large: bytes | None) -> dict[str, Value]:
    """Return all properties of a row."""
    properties, places = unpack_small(small)
    if places:
        _add_large(properties, places, large or b"")
    return properties


def large_bytes(places: Mapping[str, int], select: Sequence[str]) -> int:
    """Return how many bytes of the large part hold the properties named."""
    end = needed = 0
    for name, length in places.items():
        end += length
        if name in select:
            needed = end
    return needed


def select_from(
    properties: Mapping[str, Value], places: Mapping[str, int], large: bytes, select: Sequence[str]
) -> dict[str, Value]:
    """Return the properties named, given as much of the large part as `large_bytes` asks for."""
    selected = {name: properties[name] for name in select if name in properties}
    if large:
        _add_large(selected, places, large, select)
    return selected


def _add_large(
    properties: dict[str, Value], places: Mapping[str, int], large: bytes, select: Sequence[str] | None = None
) -> None:
    start = 0
    for name, length in places.items():
        if select is None or name in select:
            value = large[start : start + length]
            if len(value) < length:
                raise ValueError(f"The large property {name!r} is cut short.")
            properties[name] = value
        start += length


def _to_extension(value: object) -> msgpack.ExtType:
    if isinstance(value, Int64):
        return msgpack.ExtType(_INT64, value.to_bytes(8, "big", signed=True))
    if isinstance(value, datetime):
        return msgpack.ExtType(_DATETIME, ((value - _EPOCH) // _MICROSECOND).to_bytes(8, "big", signed=True))
    if isinstance(value, UUID):
        return msgpack.ExtType(_UUID, value.bytes)
    raise TypeError(f"A {type(value).__name__} cannot be stored.")


def _from_extension(code: int, data: bytes) -> Value:
    if code == _INT64:
        return Int64(int.from_bytes(data, "big", signed=True))
    if code == _DATETIME:
        return _EPOCH + timedelta(microseconds=int.from_bytes(data, "big", signed=True))
    if code == _UUID:
        return UUID(bytes=data)
    raise ValueError(f"The extension type {code} is unknown.")
