"""Tails as they are stored: as older code wrote them, and with another body."""

from zlib import crc32

import msgpack

from runtime.storage.tail import Tail


def listed(tail: Tail) -> bytes:
    """Return a tail as older code stored it: a list of segments, each with its ids, and no checksum."""
    segments = [segment if segment.number is not None else segment[:-1] for segment in tail.segments]
    packed: bytes = msgpack.packb((1, tail.first, tail.schema, tail.before, segments))
    return packed


def with_body(body: bytes) -> bytes:
    """Return the bytes of a tail with a checksum that fits."""
    packed: bytes = msgpack.packb((2, crc32(body), body))
    return packed


def body_of(tail: Tail) -> bytes:
    """Return what the checksum of a tail is taken of."""
    _, _, body = msgpack.unpackb(tail.pack())
    return bytes(body)
