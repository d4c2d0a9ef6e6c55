"""Tails as they are stored, with another body."""

from zlib import crc32

import msgpack

from runtime.versions.head import Tail


def with_body(body: bytes) -> bytes:
    """Return the bytes of a tail with a checksum that fits."""
    packed: bytes = msgpack.packb((2, crc32(body), body))
    return packed


def body_of(tail: Tail) -> bytes:
    """Return what the checksum of a tail is taken of."""
    _, _, body = msgpack.unpackb(tail.pack())
    return bytes(body)
