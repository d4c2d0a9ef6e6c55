"""Fingerprints of messages, and digests of what a message made, which a replay must reproduce.

A fingerprint tells copies of a message from another message that uses the same id. It is taken of the parsed body, so a
copy written with other spaces, other escapes or another order of keys is the same message. Numbers count as they were
sent: 1 and 1.0 are two messages. Defaults are not filled in: what was sent counts, not the class.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgpack
from msgspec.msgpack import Encoder, Ext
from pydantic_core import from_json

from handlers import Published
from handlers.codec import unpack

SIZE = 16

_LARGE_INTEGER, _OTHER_KEYS, _TIMESTAMP = 1, 2, 3


def _timestamp(value: Any) -> Ext:  # noqa: ANN401 - what msgspec has no type for
    if isinstance(value, msgpack.Timestamp):
        return Ext(_TIMESTAMP, value.to_bytes())
    raise TypeError(f"{type(value).__name__} cannot be packed")


_encode = Encoder(order="deterministic", enc_hook=_timestamp).encode


def fingerprint(message_type: str, body: str | bytes, *, packed: bool = False) -> bytes:
    """Return 16 bytes for a type and a body of JSON, or of msgpack if `packed`. Raises errors of parsing."""
    parsed = unpack(body) if packed else from_json(body)  # type: ignore[arg-type] # bytes, as the caller says
    return digest((message_type, parsed))


def digest(value: object) -> bytes:
    """Return 16 bytes of BLAKE2 for a value packed with msgpack, its keys sorted."""
    try:
        encoded = _encode(value)
    except (OverflowError, TypeError):
        encoded = _encode(_packable(value))
    return blake2b(encoded, digest_size=SIZE).digest()


def _packable(value: Any) -> Any:  # noqa: ANN401 - parsed JSON or msgpack
    """Return a value with extension types for what msgspec does not pack: large integers, and keys that are bytes."""
    match value:
        case int() if not -(2**63) <= value < 2**64:
            return Ext(_LARGE_INTEGER, str(value).encode())
        case dict() if all(type(key) is str for key in value):
            return {key: _packable(item) for key, item in value.items()}
        case dict():
            items = sorted(_encode((key, _packable(item))) for key, item in value.items())
            return Ext(_OTHER_KEYS, b"".join(items))
        case list() | tuple():
            return [_packable(item) for item in value]
        case _:
            return value


def digest_state(encoded: bytes) -> bytes:
    """Return the digest of an encoded state."""
    return blake2b(encoded, digest_size=SIZE).digest()


def digest_outputs(published: Sequence[Published]) -> bytes:
    """Return the digest of outputs: their ids, types, bodies and headers, in order."""
    return digest(published) if published else NO_OUTPUTS


NO_OUTPUTS = digest(())
