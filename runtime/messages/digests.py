"""Digests of what a message made: its outputs, and the next state. A replay must meet them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from handlers import Published
from runtime.messages.fingerprint import SIZE, digest


def digest_state(encoded: bytes) -> bytes:
    """Return the digest of an encoded state."""
    return blake2b(encoded, digest_size=SIZE).digest()


def digests_of_states(encoded: Sequence[bytes]) -> list[bytes]:
    """Return the digests of encoded states."""
    return [blake2b(each, digest_size=SIZE).digest() for each in encoded]


def digests_of_outputs(published: Sequence[Sequence[Published]]) -> list[bytes]:
    """Return the digests of what messages published."""
    return [digest(each) if each else NO_OUTPUTS for each in published]


def digest_outputs(published: Sequence[Published]) -> bytes:
    """Return the digest of outputs: their ids, types, bodies and headers, in order."""
    return digest(published)


NO_OUTPUTS = digest(())
