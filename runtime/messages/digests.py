"""Digests of what a message made: its outputs, and the next state. A replay must meet them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from handlers import Published
from runtime.messages.fingerprint import SIZE, digest


def digest_state(encoded: bytes) -> bytes:
    """Return the digest of an encoded state."""
    return sha256(encoded).digest()[:SIZE]


def digests_of_states(encoded: Sequence[bytes]) -> list[bytes]:
    """Return the digests of encoded states."""
    return [sha256(each).digest()[:SIZE] for each in encoded]


def digests_of_outputs(published: Sequence[Sequence[Published]]) -> list[bytes]:
    """Return the digests of what messages published."""
    return [digest_outputs(each) for each in published]


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
