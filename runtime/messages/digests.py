"""Digests of what a message made: its outputs, and the next state. A replay must meet them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from handlers import Published
from handlers.native import find_native
from runtime.messages.fingerprint import SIZE, digest

_native = find_native("runtime.messages._digests")


def digest_state(encoded: bytes) -> bytes:
    """Return the digest of an encoded state."""
    return sha256(encoded).digest()[:SIZE]


def digests_of_states(encoded: Sequence[bytes]) -> list[bytes]:
    """Return the digests of encoded states."""
    if _native is None:
        return [digest_state(each) for each in encoded]
    digests: list[bytes] = _native.state_digests(encoded)
    return digests


def digests_of_outputs(published: Sequence[Sequence[Published]]) -> list[bytes]:
    """Return the digests of what messages published."""
    if _native is None:
        return [digest_outputs(each) for each in published]
    digests: list[bytes] = _native.outputs_digests(published, digest_outputs)
    return digests


def digest_outputs(published: Sequence[Published]) -> bytes:
    """Return the digest of outputs: their ids, types, bodies and headers, in order."""
    if not published:
        return NO_OUTPUTS
    parts = [
        (message_id, name, body, sorted(headers.items()) if headers else ())
        for message_id, name, body, headers in published
    ]
    return digest(parts)


NO_OUTPUTS = digest([])
