"""Searching joined hashes of four bytes for some of them, in time that depends little on how many there are.

A batch looks for fifty or so ids in a history of a hundred thousand: comparing each hash in Python would cost more than
everything else. A few are searched as bytes. Some are first filtered by each of their four bytes, for all positions at
once; very many are compared as sets.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

from runtime.storage.limits import HASH_BYTES

Search = Callable[[bytes], Iterator[int]]
"""Gives the positions of wanted hashes among joined ones."""

_FEW = 4
_SOME = 500
_GROUPS = 8
"""The bits of a byte: wanted hashes are filtered in so many groups."""

_NOT_ZERO = re.compile(rb"[^\0]")


def searching(wanted: frozenset[int]) -> Search:
    """Return the search for some hashes, to be used for each row of an index."""
    if len(wanted) <= _FEW:
        return lambda hashes: _by_bytes(hashes, wanted)
    if len(wanted) <= _SOME:
        tables = _tables(wanted)
        return lambda hashes: _by_filter(hashes, wanted, tables)
    return lambda hashes: _by_set(hashes, wanted)


def pack(numbers: Iterable[int]) -> bytes:
    """Return numbers of four bytes, joined; little-endian on every machine."""
    packed = array("I", numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack(data: bytes) -> Sequence[int]:
    """Return joined numbers of four bytes. Raises `ValueError` for a rest of fewer bytes."""
    numbers = array("I", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _by_bytes(hashes: bytes, wanted: Iterable[int]) -> Iterator[int]:
    for hash_ in wanted:
        packed = pack([hash_])
        start = hashes.find(packed)
        while start >= 0:
            position, offset = divmod(start, HASH_BYTES)
            if not offset:
                yield position
            start = hashes.find(packed, start + 1)


def _by_filter(hashes: bytes, wanted: frozenset[int], tables: Sequence[bytes]) -> Iterator[int]:
    """Keep the positions where one group of wanted hashes has all four bytes, and compare these."""
    kept = -1
    for lane, table in enumerate(tables):
        kept &= int.from_bytes(hashes[lane::HASH_BYTES].translate(table), "little")
    for match in _NOT_ZERO.finditer(kept.to_bytes(len(hashes) // HASH_BYTES, "little")):
        start = match.start() * HASH_BYTES
        hash_ = int.from_bytes(hashes[start : start + HASH_BYTES], "little")
        if hash_ in wanted:
            yield match.start()


def _tables(wanted: frozenset[int]) -> list[bytes]:
    """Return, for each byte of a hash, the groups in which a wanted hash has each value of that byte."""
    tables = [bytearray(256) for _ in range(HASH_BYTES)]
    for number, hash_ in enumerate(wanted):
        for table, value in zip(tables, pack([hash_]), strict=True):
            table[value] |= 1 << number % _GROUPS
    return [bytes(table) for table in tables]


def _by_set(hashes: bytes, wanted: frozenset[int]) -> Iterator[int]:
    column = unpack(hashes)
    known = wanted.intersection(column)
    if known:
        for position, hash_ in enumerate(column):
            if hash_ in known:
                yield position
