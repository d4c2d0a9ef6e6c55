"""Guids, message ids and random numbers derived from a message, the same on every machine and in every process.

A draw is SHA-256 over message id, handler, business id, kind of draw and counter, each text preceded by its length.
With a key, a draw is HMAC-SHA-256 over the same bytes, which senders cannot predict. Each kind has its own counter, so
an additional draw of one kind does not shift another kind. The values never change: they are in the storage contract.
"""

from __future__ import annotations

import hmac
import random
from bisect import bisect
from collections.abc import Callable, Iterable, MutableSequence, Sequence
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID, SafeUUID

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

T = TypeVar("T")

_BLOCK_BITS = 256
_UUID_VERSION_8 = 0x8 << 76
_UUID_VARIANT = 0x2 << 62
_UUID_FIXED_BITS = ~((0xF << 76) | (0x3 << 62))
_new, _set, _UNKNOWN = object.__new__, object.__setattr__, SafeUUID.unknown
_VARIANT_DIGITS = {f"{digit:x}": "89ab"[digit & 0x3] for digit in range(16)}
"""The hexadecimal digit with the UUID variant, by drawn digit."""
_FLOAT_BITS = 53
_SMALL_POOL = 21
_FEW = 5


class Seed:
    """The source of all draws for one message in one handler. `key` is the secret, None for draws without a secret."""

    __slots__ = ("_key", "_prefix")  # one for each message

    def __init__(self, message_id: str, handler: str, business_id: str, key: bytes | None = None) -> None:
        self._prefix = _with_length(message_id) + _stream_prefix(handler, business_id)
        self._key = key

    def draw(self, kind: str, counter: int) -> bytes:
        """Return the 32 bytes of a draw. Each kind, such as "guid", has its own counter, from 0."""
        drawn = self._prefix + _suffix(kind, counter)
        return sha256(drawn).digest() if self._key is None else hmac.digest(self._key, drawn, "sha256")

    def guid(self, kind: str, counter: int) -> UUID:
        """Return a draw as a UUID of version 8, the version for custom values (RFC 9562)."""
        bits = int.from_bytes(self.draw(kind, counter)[:16], "big")
        guid = _new(UUID)  # as UUID(int=...), in half the time
        _set(guid, "int", bits & _UUID_FIXED_BITS | _UUID_VERSION_8 | _UUID_VARIANT)
        _set(guid, "is_safe", _UNKNOWN)
        return guid

    def guid_text(self, kind: str, counter: int) -> str:
        """Return `str(guid(kind, counter))` in half the time."""
        digits = self.draw(kind, counter).hex()
        variant = _VARIANT_DIGITS[digits[16]]
        return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:32]}"


class SeededRandom(random.Random):
    """A `random.Random` whose bits are draws of the message.

    Methods: random, getrandbits, randbytes, randrange, randint, choice, choices, shuffle, sample and uniform. They use
    only integers and basic arithmetic, so results are the same on every machine and Python version. Other methods,
    such as gauss, raise `NotImplementedError`: the last digits of logarithms and cosines depend on the machine.
    """

    def __init__(self, seed: Seed) -> None:
        self._seed = seed
        self._counter = 0
        self._bits = 0
        self._count = 0
        super().__init__(0)

    def getrandbits(self, k: int, /) -> int:
        """Return `k` random bits."""
        if k < 0:
            raise ValueError(f"The number of bits is {k}: it must not be negative.")
        # Bits that are left over serve the next call.
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
        """Return a float from 0 to 1, exclusive."""
        return self.getrandbits(_FLOAT_BITS) / (1 << _FLOAT_BITS)

    def uniform(self, a: float, b: float) -> float:
        """Return a float from `a` to `b`."""
        return a + (b - a) * self.random()

    def randbytes(self, n: int) -> bytes:
        """Return `n` random bytes."""
        return self.getrandbits(n * 8).to_bytes(n, "little")

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """Return a member of `range(start, stop, step)` or `range(start)`. Raises `ValueError` for an empty range."""
        numbers = range(start) if stop is None else range(start, stop, step)
        towards_zero = 1 if numbers.step > 0 else -1  # len() fails for more than 63 bits
        count = (numbers.stop - numbers.start + numbers.step - towards_zero) // numbers.step
        if count < 1:
            raise ValueError(f"{numbers} is empty: there is no number to draw.")
        return numbers.start + numbers.step * self._below(count)

    def randint(self, a: int, b: int) -> int:
        """Return a number from `a` to `b`, inclusive."""
        return self.randrange(a, b + 1)

    def choice(self, seq: SupportsLenAndGetItem[T]) -> T:
        """Return an item of a sequence. Raises `IndexError` for an empty sequence."""
        if not len(seq):
            raise IndexError("The sequence is empty: there is no item to choose.")
        return seq[self._below(len(seq))]

    def choices(
        self,
        population: SupportsLenAndGetItem[T],
        weights: Sequence[float | Fraction] | None = None,
        *,
        cum_weights: Sequence[float | Fraction] | None = None,
        k: int = 1,
    ) -> list[T]:
        """Return `k` items drawn with replacement; with weights, items are drawn in proportion to them."""
        count = len(population)
        if weights is not None and cum_weights is not None:
            raise TypeError("Pass weights or cumulative weights, not both.")
        if weights is not None:
            cum_weights = list(accumulate(weights))
        if cum_weights is None:
            return [population[int(self.random() * count)] for _ in range(k)]
        if len(cum_weights) != count:
            raise ValueError(f"There are {len(cum_weights)} weights for {count} items: give one for each.")
        total = float(cum_weights[-1])
        if not 0 < total < float("inf"):
            raise ValueError(f"The weights add up to {total}: the sum must be positive and finite.")
        return [population[bisect(cum_weights, self.random() * total, 0, count - 1)] for _ in range(k)]

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Shuffle a list in place."""
        for last in reversed(range(1, len(x))):
            other = self._below(last + 1)
            x[last], x[other] = x[other], x[last]

    def sample(self, population: Sequence[T], k: int, *, counts: Iterable[int] | None = None) -> list[T]:
        """Return `k` items drawn without replacement. `counts` says how often each item is in the population."""
        if not isinstance(population, Sequence):
            raise TypeError(f"sample() takes a sequence, not a {type(population).__name__}: use sorted(...).")
        if counts is None:
            return [population[position] for position in self._places(len(population), k)]
        ends = list(accumulate(counts))
        if len(ends) != len(population):
            raise ValueError(f"There are {len(ends)} counts for {len(population)} items: give one for each.")
        return [population[bisect(ends, position)] for position in self._places(ends[-1] if ends else 0, k)]

    def seed(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - random.Random's
        """No-op, called by the constructor of `random.Random`: the message is the seed."""

    def _below(self, count: int) -> int:
        bits = count.bit_length()
        drawn = self.getrandbits(bits)
        while drawn >= count:
            drawn = self.getrandbits(bits)
        return drawn

    def _places(self, count: int, k: int) -> list[int]:
        """Return `k` different numbers below `count`, drawn from a pool if `count` is small, otherwise by rejection."""
        if not 0 <= k <= count:
            raise ValueError(f"A sample of {k} items needs a population of at least {k}, not {count}.")
        small = _SMALL_POOL
        if k > _FEW:
            small += 4 ** (((3 * k - 1).bit_length() + 1) // 2)  # the first power of 4 from 3 k on
        if count <= small:
            pool, taken = list(range(count)), []
            for left in range(count, count - k, -1):
                position = self._below(left)
                taken.append(pool[position])
                pool[position] = pool[left - 1]
            return taken
        positions: dict[int, None] = {}
        while len(positions) < k:
            positions[self._below(count)] = None
        return list(positions)


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:  # noqa: ANN401 - takes any arguments
        instead = f"context.capture({name!r}, lambda: random.{name}(...))"
        raise NotImplementedError(f"context.random has no {name}(), as a replay may differ: use {instead}.")

    return refuse


for _name, _method in vars(random.Random).items():
    if callable(_method) and not _name.startswith("_") and _name not in vars(SeededRandom):
        setattr(SeededRandom, _name, _refusal(_name))


@lru_cache(maxsize=64)
def _stream_prefix(handler: str, business_id: str) -> bytes:
    """Return a stream's part of the hash input. Cached, as a worker handles many messages of a stream in a row."""
    return _with_length(handler) + _with_length(business_id)


@lru_cache(maxsize=1024)
def _suffix(kind: str, counter: int) -> bytes:
    """Return the part of the hash input for a draw. Cached: most draws are among the first few of their kind."""
    return _with_length(kind) + counter.to_bytes(8, "big")


def _with_length(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(4, "big") + data
