"""Guids, message ids and random numbers drawn from a message, the same on every machine and process.

Each draw is SHA-256 over (message id, handler, business id, kind of draw, counter), every part preceded by
its length. Two handlers of one message draw different values, and each kind has its own counter, so that one
more draw of one kind never shifts another. The values are part of the storage contract: they never change.
"""

from __future__ import annotations

import random
from functools import lru_cache
from hashlib import sha256
from typing import Any
from uuid import UUID

_BLOCK_BITS = 256
_UUID_VERSION_8 = 0x8 << 76
_UUID_VARIANT = 0x2 << 62
_UUID_FIXED_BITS = ~((0xF << 76) | (0x3 << 62))
_FLOAT_BITS = 53


class Seed:
    """What the draws of one message in one handler begin with."""

    __slots__ = ("_prefix",)

    def __init__(self, message_id: str, handler: str, business_id: str) -> None:
        self._prefix = _with_length(message_id) + _stream_prefix(handler, business_id)

    def draw(self, kind: str, counter: int) -> bytes:
        """Return the 32 bytes that are number `counter`, from 0, of a kind."""
        return sha256(self._prefix + _with_length(kind) + counter.to_bytes(8, "big")).digest()

    def guid(self, kind: str, counter: int) -> UUID:
        """Return a draw as a UUID of version 8, the version for values of one's own making (RFC 9562)."""
        return UUID(int=self._guid_bits(kind, counter))

    def guid_text(self, kind: str, counter: int) -> str:
        """Return `str(guid(kind, counter))`, in half the time."""
        digits = f"{self._guid_bits(kind, counter):032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def _guid_bits(self, kind: str, counter: int) -> int:
        bits = int.from_bytes(self.draw(kind, counter)[:16], "big")
        return bits & _UUID_FIXED_BITS | _UUID_VERSION_8 | _UUID_VARIANT


class SeededRandom(random.Random):
    """A `random.Random` whose bits are draws, so that none depends on Python's own generator."""

    gauss_next: float | None = None

    def __init__(self, seed: Seed) -> None:
        self._seed = seed
        self._counter = 0
        self._bits = 0
        self._count = 0
        super().__init__(0)

    def getrandbits(self, k: int, /) -> int:
        """Return `k` random bits."""
        if k < 0:
            message = "The number of bits must not be negative."
            raise ValueError(message)
        while self._count < k:
            block = int.from_bytes(self._seed.draw("random", self._counter), "big")
            self._bits |= block << self._count
            self._count += _BLOCK_BITS
            self._counter += 1
        value = self._bits & ((1 << k) - 1)
        self._bits >>= k
        self._count -= k
        return value

    def random(self) -> float:
        """Return a float from 0 up to 1, 1 excluded."""
        return self.getrandbits(_FLOAT_BITS) / (1 << _FLOAT_BITS)

    def randbytes(self, n: int) -> bytes:
        """Return `n` random bytes."""
        return self.getrandbits(n * 8).to_bytes(n, "little")

    def seed(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - random.Random's
        """Do nothing: the seed is the message's. `random.Random` calls this when it is made."""

    def getstate(self) -> Any:  # noqa: ANN401 - random.Random's
        """Refuse: there is nothing to save, as replay gives the same numbers."""
        message = "The random numbers of a context have no state to save: a replay draws the same ones."
        raise NotImplementedError(message)

    def setstate(self, _: Any) -> None:  # noqa: ANN401 - random.Random's
        """Refuse: the numbers are those of the message."""
        message = "The random numbers of a context cannot be set: they are those of the message."
        raise NotImplementedError(message)


@lru_cache(maxsize=64)
def _stream_prefix(handler: str, business_id: str) -> bytes:
    """Return what the messages of one stream have in common; a worker handles many of them in a row."""
    return _with_length(handler) + _with_length(business_id)


def _with_length(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(4, "big") + data
