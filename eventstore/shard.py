"""Spreading keys over a fixed number of shards."""

from __future__ import annotations

from hashlib import sha512

_MULTIPLIER = 2862933555777941757
_MASK_64 = 2**64 - 1


class Shard:
    """The jump consistent hash of Lamping and Veach: one more shard moves as few keys as possible."""

    @staticmethod
    def resolve(key: str | bytes | int, total: int) -> int:
        """Return the shard of a key, from 0 to `total` - 1; the same in every process.

        Text is hashed as UTF-16, bytes as they are; an integer is used as the hash, modulo 2**64.
        """
        if total < 1:
            raise ValueError(f"There must be at least one shard, not {total}.")
        if isinstance(key, str):
            key = key.encode("utf-16-le", "surrogatepass")
        if isinstance(key, bytes):
            key = int.from_bytes(sha512(key).digest()[-8:], "little")
        state = key & _MASK_64
        shard, following = -1, 0
        while following < total:
            shard = following
            state = (state * _MULTIPLIER + 1) & _MASK_64
            following = int((shard + 1) * ((1 << 31) / ((state >> 33) + 1)))
        return shard
