"""Guids, message ids and random numbers drawn from a message, the same on every machine and process.

Each draw is SHA-256 over (message id, handler, business id, kind of draw, counter), every part preceded by
its length. Two handlers of one message draw different values, and each kind has its own counter, so that one
more draw of one kind never shifts another. The values are part of the storage contract: they never change. This
module needs nothing but the standard library, so that every Python at hand can be asked for them.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Callable, Iterable, MutableSequence, Sequence
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate
from typing import Any, Protocol, TypeVar
from uuid import UUID

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_BLOCK_BITS = 256
_UUID_VERSION_8 = 0x8 << 76
_UUID_VARIANT = 0x2 << 62
_UUID_FIXED_BITS = ~((0xF << 76) | (0x3 << 62))
_VARIANT_DIGITS = {f"{digit:x}": "89ab"[digit & 0x3] for digit in range(16)}
"""The hexadecimal digit with the variant of a UUID, by the digit that was drawn there."""
_FLOAT_BITS = 53
_SMALL_POOL = 21
_FEW = 5


class _Sized(Protocol[T_co]):
    """A sequence, as far as one item of it is chosen."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> T_co: ...


class Seed:
    """What the draws of one message in one handler begin with."""

    __slots__ = ("_prefix",)

    def __init__(self, message_id: str, handler: str, business_id: str) -> None:
        self._prefix = _with_length(message_id) + _stream_prefix(handler, business_id)

    def draw(self, kind: str, counter: int) -> bytes:
        """Return the 32 bytes that are number `counter`, from 0, of a kind."""
        return sha256(self._prefix + _suffix(kind, counter)).digest()

    def guid(self, kind: str, counter: int) -> UUID:
        """Return a draw as a UUID of version 8, the version for values of one's own making (RFC 9562)."""
        bits = int.from_bytes(self.draw(kind, counter)[:16], "big")
        return UUID(int=bits & _UUID_FIXED_BITS | _UUID_VERSION_8 | _UUID_VARIANT)

    def guid_text(self, kind: str, counter: int) -> str:
        """Return `str(guid(kind, counter))`, in half the time."""
        digits = self.draw(kind, counter).hex()
        variant = _VARIANT_DIGITS[digits[16]]
        return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:32]}"


class SeededRandom(random.Random):
    """A `random.Random` whose bits are draws, so that none depends on Python's own generator.

    What is offered is computed here by whole numbers and the four rules of arithmetic, so that it is the same under
    every version of Python and on every machine: random, getrandbits, randbytes, randrange, randint, choice, choices,
    shuffle, sample and uniform. All else that `random.Random` has, such as gauss, is refused: it takes logarithms and
    cosines, whose last digit is the machine's, by ways that a version of Python may change.
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

    def uniform(self, a: float, b: float) -> float:
        """Return a float between `a` and `b`."""
        return a + (b - a) * self.random()

    def randbytes(self, n: int) -> bytes:
        """Return `n` random bytes."""
        return self.getrandbits(n * 8).to_bytes(n, "little")

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """Return a number of `range(start, stop, step)`, or of `range(start)`. Raises `ValueError` for an empty one."""
        numbers = range(start) if stop is None else range(start, stop, step)
        count = _length(numbers)
        if count < 1:
            message = f"There is no number in {numbers}."
            raise ValueError(message)
        return numbers.start + numbers.step * self._below(count)

    def randint(self, a: int, b: int) -> int:
        """Return a number from `a` to `b`, both included."""
        return self.randrange(a, b + 1)

    def choice(self, seq: _Sized[T]) -> T:
        """Return one of a sequence's items. Raises `IndexError` for an empty one."""
        if not len(seq):
            message = "There is nothing to choose from."
            raise IndexError(message)
        return seq[self._below(len(seq))]

    def choices(
        self,
        population: _Sized[T],
        weights: Sequence[float | Fraction] | None = None,
        *,
        cum_weights: Sequence[float | Fraction] | None = None,
        k: int = 1,
    ) -> list[T]:
        """Return `k` items, each chosen from all of them, by their weights if there are any."""
        count = len(population)
        if weights is not None and cum_weights is not None:
            message = "Give weights or cumulative weights, not both."
            raise TypeError(message)
        if weights is not None:
            cum_weights = list(accumulate(weights))
        if cum_weights is None:
            return [population[int(self.random() * count)] for _ in range(k)]
        if len(cum_weights) != count:
            message = f"There are {len(cum_weights)} weights for {count} items."
            raise ValueError(message)
        total = float(cum_weights[-1])
        if not 0 < total < float("inf"):
            message = f"The weights add up to {total}: the sum must be above zero and finite."
            raise ValueError(message)
        return [population[bisect(cum_weights, self.random() * total, 0, count - 1)] for _ in range(k)]

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Put a list into random order, in place."""
        for place in reversed(range(1, len(x))):
            other = self._below(place + 1)
            x[place], x[other] = x[other], x[place]

    def sample(self, population: Sequence[T], k: int, *, counts: Iterable[int] | None = None) -> list[T]:
        """Return `k` different items; with `counts`, each stands in the population so many times."""
        if not isinstance(population, Sequence):
            message = f"A sample is taken of a sequence; a {type(population).__name__} has no order: sort it."
            raise TypeError(message)
        if counts is None:
            return [population[place] for place in self._places(len(population), k)]
        ends = list(accumulate(counts))
        if len(ends) != len(population):
            message = f"There are {len(ends)} counts for {len(population)} items."
            raise ValueError(message)
        return [population[bisect(ends, place)] for place in self._places(ends[-1] if ends else 0, k)]

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

    def _below(self, count: int) -> int:
        """Return a number from 0 up to `count`, which is excluded: bits are drawn until they are below it."""
        bits = count.bit_length()
        drawn = self.getrandbits(bits)
        while drawn >= count:
            drawn = self.getrandbits(bits)
        return drawn

    def _places(self, count: int, k: int) -> list[int]:
        """Return `k` different numbers below `count`; few of many are drawn until they differ, others from a pool."""
        if not 0 <= k <= count:
            message = f"A sample of {k} cannot be taken of {count} items."
            raise ValueError(message)
        small = _SMALL_POOL
        if k > _FEW:
            small += 4 ** (((3 * k - 1).bit_length() + 1) // 2)  # the first power of 4 that is not below 3 k
        if count <= small:
            return self._from_pool(list(range(count)), k)
        places: dict[int, None] = {}
        while len(places) < k:
            places[self._below(count)] = None
        return list(places)

    def _from_pool(self, pool: list[int], k: int) -> list[int]:
        taken = []
        for left in range(len(pool), len(pool) - k, -1):
            place = self._below(left)
            taken.append(pool[place])
            pool[place] = pool[left - 1]
        return taken


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(self: SeededRandom, *_: Any, **__: Any) -> Any:  # noqa: ANN401 - takes what any of them takes
        message = (
            f"context.random has no {name}: its values are not the same on every machine and Python. Record it with "
            f"the version: context.capture({name!r}, lambda: random.{name}(...))."
        )
        raise NotImplementedError(message)

    return refuse


for _name in vars(random.Random):
    if (
        not _name.startswith("_")
        and callable(getattr(random.Random, _name))
        and _name not in vars(SeededRandom)
    ):
        setattr(SeededRandom, _name, _refusal(_name))


def _length(numbers: range) -> int:
    """Return how many numbers there are, below 1 when there are none: more than `len` can say, maybe."""
    towards_zero = 1 if numbers.step > 0 else -1
    return (numbers.stop - numbers.start + numbers.step - towards_zero) // numbers.step


@lru_cache(maxsize=64)
def _stream_prefix(handler: str, business_id: str) -> bytes:
    """Return what the messages of one stream have in common; a worker handles many of them in a row."""
    return _with_length(handler) + _with_length(business_id)


@lru_cache(maxsize=1024)
def _suffix(kind: str, counter: int) -> bytes:
    """Return the end of what is hashed for a draw; nearly all draws are the first few of a kind."""
    return _with_length(kind) + counter.to_bytes(8, "big")


def _with_length(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(4, "big") + data
