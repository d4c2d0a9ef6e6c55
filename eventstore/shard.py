"""Spreading keys over a fixed number of shards."""

from __future__ import annotations

import hashlib

_MULTIPLIER = 2862933555777941757
_MASK = 2**64 - 1


class Shard:
    """The jump consistent hash of Lamping and Veach: with one shard more, as few keys as possible move."""

    @staticmethod
    def resolve(key: str | bytes | int, total: int) -> int:
        """Return the shard of a key, from 0 to `total` - 1; the same in every process.

        Text is hashed by the first 8 bytes of its SHA-256; a number is taken as it is, modulo 2**64.
        """
        if total < 1:
            raise ValueError(f"There must be at least one shard, not {total}.")
        state = _number(key)
        shard, following = -1, 0
        while following < total:
            shard = following
            state = (state * _MULTIPLIER + 1) & _MASK
            following = int((shard + 1) * ((1 << 31) / ((state >> 33) + 1)))
        return shard


def _number(key: str | bytes | int) -> int:
    if isinstance(key, int):
        return key & _MASK
    data = key.encode() if isinstance(key, str) else key
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big")
