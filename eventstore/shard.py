"""Spreading keys over a fixed number of shards, as Streamstone does."""

from __future__ import annotations

import struct

_MULTIPLIER = 2862933555777941757
_MASK_64 = 2**64 - 1

# The first version of XXHash, of 32 bits, and Streamstone's seed.
_SEED = 0xC58F1A7B
_MASK = 2**32 - 1
_PRIMES = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_STRIPE = struct.Struct("<4I")
_STRIPE_TURNS = 13, 11, 17, 19
_LAST_TURNS = 17, 19, 13, 11
_MIXING_TURNS = 11, 17, 19, 13
_JOINING_TURNS = 0, 3, 6, 9


class Shard:
    """The jump consistent hash of Lamping and Veach: with one shard more, as few keys as possible move.

    A key has the shard that it has in Streamstone, so that tables which are sharded by keys can be shared with it.
    """

    @staticmethod
    def resolve(key: str | bytes | int, total: int) -> int:
        """Return the shard of a key, from 0 to `total` - 1; the same in every process.

        Text is hashed as UTF-16, bytes as they are; a number is taken as it is, modulo 2**64.
        """
        if total < 1:
            raise ValueError(f"There must be at least one shard, not {total}.")
        state = _number(key)
        shard, following = -1, 0
        while following < total:
            shard = following
            state = (state * _MULTIPLIER + 1) & _MASK_64
            following = int((shard + 1) * ((1 << 31) / ((state >> 33) + 1)))
        return shard


def _number(key: str | bytes | int) -> int:
    if isinstance(key, int):
        return key & _MASK_64
    return xxhash(key.encode("utf-16-le", "surrogatepass") if isinstance(key, str) else key, _SEED)


def xxhash(data: bytes, seed: int) -> int:
    """Return the hash that XXHash gave before it was changed in 2012, which Streamstone took over from Event Store."""
    prime_1, prime_2, prime_3, prime_4, _ = _PRIMES
    if len(data) < _STRIPE.size:
        return _hash_of_a_few(data, seed)
    lanes = [(seed + prime_1) & _MASK]
    for prime, added in ((prime_2, len(data)), (prime_3, 0), (prime_4, 0)):
        lanes.append((lanes[-1] * prime + added) & _MASK)
    last = len(data) - _STRIPE.size
    for place in range(0, last, _STRIPE.size):
        lanes = _stirred(lanes, _STRIPE_TURNS, _STRIPE.unpack_from(data, place))
    lanes = _stirred(lanes, _LAST_TURNS, _STRIPE.unpack_from(data, last))
    lanes = [lane * prime_2 & _MASK for lane in lanes]
    lanes = [
        (lane + _turned(lane, turn)) * prime_3 & _MASK
        for lane, turn in zip(lanes, _MIXING_TURNS, strict=True)
    ]
    joined = sum(_turned(lane, turn) for lane, turn in zip(lanes, _JOINING_TURNS, strict=True)) & _MASK
    joined ^= joined >> 11
    joined = (joined + (prime_4 + len(data)) * prime_1) & _MASK
    joined ^= joined >> 15
    joined = joined * prime_2 & _MASK
    return joined ^ joined >> 13


def _hash_of_a_few(data: bytes, seed: int) -> int:
    """Return the hash of less than a stripe: by words of four bytes, and the last one to four bytes one by one."""
    prime_1, prime_2, prime_3, prime_4, prime_5 = _PRIMES
    number = (seed + prime_1) & _MASK
    words = max(len(data) - 1, 0) // 4
    found = prime_5
    for word in struct.unpack_from(f"<{words}I", data):
        found = (found + word + number) & _MASK
        found = (found + _turned(found, 17) * prime_4) * prime_1 & _MASK
        number += 1
    for byte in data[4 * words :]:
        found = (found + byte + number) * prime_1 & _MASK
        number += 1
    found = (found + len(data)) & _MASK
    found = (found ^ found >> 15) * prime_2 & _MASK
    found = (found ^ found >> 13) * prime_3 & _MASK
    return found ^ found >> 16


def _stirred(lanes: list[int], turns: tuple[int, ...], words: tuple[int, ...]) -> list[int]:
    return [
        ((lane + _turned(lane, turn)) * _PRIMES[0] + word) & _MASK
        for lane, turn, word in zip(lanes, turns, words, strict=True)
    ]


def _turned(word: int, turn: int) -> int:
    """Return a word of 32 bits turned left."""
    return (word << turn | word >> (32 - turn)) & _MASK
