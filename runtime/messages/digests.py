"""Fingerprints of messages, and digests of states and outputs that a replay must reproduce.

A fingerprint distinguishes a copy of a message from another message with the same id.
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
    """Return the 16-byte fingerprint of a type and a body: JSON, or msgpack if `packed`. Raises the parser's errors."""
    # Parsing first makes copies equal whose JSON differs in spaces, escapes or key order. 1 and 1.0 stay different, and
    # defaults of the class are not filled in: the message counts as sent.
    parsed = unpack(body) if packed else from_json(body)  # type: ignore[arg-type] # `packed` implies bytes
    return digest((message_type, parsed))


def digest(value: object) -> bytes:
    """Return the 16-byte BLAKE2 hash of a value, packed with msgpack and sorted keys."""
    try:
        encoded = _encode(value)
    except (OverflowError, TypeError):
        encoded = _encode(_packable(value))
    return blake2b(encoded, digest_size=SIZE).digest()


def _packable(value: Any) -> Any:  # noqa: ANN401 - parsed JSON or msgpack
    """Replace what msgspec cannot pack, large integers and non-text keys, with extension types."""
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
    """Return the 16-byte hash of an encoded state."""
    return blake2b(encoded, digest_size=SIZE).digest()


def digest_outputs(published: Sequence[Published]) -> bytes:
    """Return the digest of the outputs' ids, types, bodies and headers, in order."""
    return digest(published) if published else NO_OUTPUTS


NO_OUTPUTS = digest(())
