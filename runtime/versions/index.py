"""The index of message ids: finds the versions in a long history that messages may have made.

The index stores a hash of four bytes per id. A version whose hash matches must be read and compared, because hashes
collide. An id without a match is new. Index rows sort between header and events, so one range query reads header and
index without events. A new row is merged with preceding rows that are at most twice as large. So there are O(log n)
rows, and each hash is rewritten O(log n) times.

The hash is BLAKE2b with a random key per stream, which prevents senders from crafting ids that collide.
"""

from __future__ import annotations

import re
import secrets
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

from eventstore import Include, Int64, Partition, Row, Value
from eventstore.reading import read_rows
from runtime.errors import StoredDataError
from runtime.messages.envelope import IdKey
from runtime.versions import limits
from runtime.versions.limits import HASH_BYTES
from runtime.versions.properties import CHUNK, INT32, chunk_names, expect, join, number, reading_row, split

Search = Callable[[bytes], Iterator[int]]
"""Yields the positions of wanted hashes in a concatenation of hashes."""

# A batch looks for some fifty ids among a hundred thousand. Comparing every hash in Python would dominate its cost.
_FEW = 4  # up to this number of ids, a search per id is fastest
_SOME = 500  # up to this number of ids, filtering all hashes at once is fastest
_GROUPS = 8  # the number of groups of wanted hashes in the filter, one per bit of a byte
_NOT_ZERO = re.compile(rb"[^\0]")


def searching(wanted: frozenset[int]) -> Search:
    """Return a function that searches for the `wanted` hashes, in the fastest way for their number."""
    if len(wanted) <= _FEW:
        return lambda hashes: _by_bytes(hashes, wanted)
    if len(wanted) > _SOME:
        return lambda hashes: _by_set(hashes, wanted)
    # Bit g of tables[i][value] is set if byte i of a hash in group g has this value.
    tables = [bytearray(256) for _ in range(HASH_BYTES)]
    for position, hash_ in enumerate(wanted):
        for table, value in zip(tables, pack([hash_]), strict=True):
            table[value] |= 1 << position % _GROUPS
    return lambda hashes: _by_filter(hashes, wanted, tables)


def pack(numbers: Sequence[int]) -> bytes:
    """Encode integers as four bytes each, little-endian."""
    return struct.pack(f"<{len(numbers)}I", *numbers)


def unpack(data: bytes) -> Sequence[int]:
    """Decode the integers that `pack` encoded. Raises `ValueError` if bytes are left over."""
    numbers = array("I", data)  # faster than `struct` for many numbers
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


def _by_filter(hashes: bytes, wanted: frozenset[int], tables: Sequence[bytearray]) -> Iterator[int]:
    """Yield the positions of `wanted` hashes. First filters all hashes at once, with the bit masks `tables`."""
    # A byte of `kept` is not zero if all four bytes of its hash match hashes of one group.
    kept = -1
    for lane, table in enumerate(tables):
        kept &= int.from_bytes(hashes[lane::HASH_BYTES].translate(table), "little")
    for match in _NOT_ZERO.finditer(kept.to_bytes(len(hashes) // HASH_BYTES, "little")):
        start = match.start() * HASH_BYTES
        if int.from_bytes(hashes[start : start + HASH_BYTES], "little") in wanted:
            yield match.start()


def _by_set(hashes: bytes, wanted: frozenset[int]) -> Iterator[int]:
    column = unpack(hashes)
    if known := wanted.intersection(column):
        yield from (position for position, hash_ in enumerate(column) if hash_ in known)


PREFIX = "SS-IDX-"
LAST = PREFIX + "~"  # the upper bound of index row keys
_HASHES = chunk_names("Hashes", limits.MAX_INDEX_HASHES * HASH_BYTES // CHUNK)
_ENDS = chunk_names("Ends", 4)
PROPERTIES = ["First", "Count", "FirstEvent", "Key", *_ENDS, *_HASHES]
KEY_BYTES = 16
_DROPPED_AT_ONCE = 16  # truncated rows that one transaction deletes


class VersionPosition(NamedTuple):
    """The position of a version: the event of its run, and the index in the run."""

    event: int
    position: int


@dataclass(frozen=True, slots=True)
class IndexRow:
    """A row of the index: the hashed message ids of consecutive runs."""

    first: int  # the number of the first version
    first_event: int  # the event of the first version's run
    ends: Sequence[int]  # for each run, the position after its last version
    id_hashes: bytes
    key: bytes = field(repr=False)  # of the hashes

    @classmethod
    def of(cls, first: int, event: int, ids: Collection[IdKey], key: bytes) -> IndexRow:
        """Return the row of the run in `event`. `first` is the run's first version. `key` hashes its message `ids`."""
        return cls(first, event, [len(ids)], id_hashes_of(ids, key), key)

    @property
    def count(self) -> int:
        return len(self.id_hashes) // HASH_BYTES

    @property
    def row_key(self) -> str:
        return f"{PREFIX}{self.first:016d}"

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    def takes(self, following: IndexRow) -> bool:
        return self.key == following.key and self.count + following.count <= limits.MAX_INDEX_HASHES

    def merged(self, following: IndexRow) -> IndexRow:
        ends = [*self.ends, *[self.count + end for end in following.ends]]
        return IndexRow(self.first, self.first_event, ends, self.id_hashes + following.id_hashes, self.key)

    def properties(self) -> dict[str, Value]:
        properties: dict[str, Value] = {
            "First": Int64(self.first),
            "Count": self.count,
            "FirstEvent": Int64(self.first_event),
            "Key": self.key,
        }
        split(properties, _ENDS, pack(self.ends))
        split(properties, _HASHES, self.id_hashes)
        return properties

    def locate(self, position: int) -> VersionPosition:
        number_of_run = bisect_right(self.ends, position)
        start = self.ends[number_of_run - 1] if number_of_run else 0
        return VersionPosition(self.first_event + number_of_run, position - start)


def read_index_row(row: Row) -> IndexRow:
    """Decode an index row. Raises `StoredDataError` if the row is corrupt."""
    properties = row.properties
    with reading_row(f"The index row {row.row_key}", row):
        key = expect(properties["Key"], bytes)
        id_hashes, ends = join(properties, _HASHES), unpack(join(properties, _ENDS))
        index = IndexRow(number(properties, "First"), number(properties, "FirstEvent"), ends, id_hashes, key)
        count = number(properties, "Count", most=INT32)
    problem, ends = None, [0, *ends]
    if len(key) != KEY_BYTES:
        problem = f"a key of {len(key)} bytes"
    elif not index.count == count == ends[-1] or any(a >= b for a, b in pairwise(ends)):
        problem = f"hashes of {index.count} versions and counts {count}"
    if problem is not None:
        raise StoredDataError(f"The index row {row.row_key} has {problem}.", row.row_key, row.partition_key)
    return index


def id_hashes_of(ids: Iterable[IdKey], key: bytes) -> bytes:
    begin = blake2b(key=key, digest_size=HASH_BYTES).copy
    hashes = []
    for each in ids:
        hash_ = begin()
        hash_.update(each if isinstance(each, bytes) else each.encode())
        hashes.append(hash_.digest())
    return b"".join(hashes)


def candidates(rows: Sequence[IndexRow], ids: Collection[IdKey]) -> Iterator[VersionPosition]:
    """Yield the positions whose hashes equal those of `ids`. Versions there may have been made by other messages."""
    searches = {
        key: searching(frozenset(unpack(id_hashes_of(ids, key)))) for key in {row.key for row in rows}
    }
    for row in rows:
        for position in searches[row.key](row.id_hashes):
            yield row.locate(position)


def key_after(rows: Sequence[IndexRow]) -> bytes:
    """Return the key with which to hash new ids: the key of the newest row, or a random key if there are no rows."""
    return rows[-1].key if rows else new_key()


def new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def index_changes(
    rows: Sequence[IndexRow], runs: Sequence[IndexRow], kept_from: int
) -> tuple[list[IndexRow], list[Include]]:
    """Add `runs`, and drop up to 16 rows that end before `kept_from`. Return the new rows and the changes to write."""
    # The limit keeps the transaction small.
    gone = [row for row in rows if row.last < kept_from][:_DROPPED_AT_ONCE]
    kept = list(rows[len(gone) :])
    added: list[IndexRow] = []
    for row in runs:
        if added and added[-1].takes(row):
            added[-1] = added[-1].merged(row)
        else:
            added.append(row)
    while kept and kept[-1].count <= 2 * added[0].count and kept[-1].takes(added[0]):
        added[0] = kept.pop().merged(added[0])
    after = [*kept, *added]
    left_out = {row.row_key for row in rows} - {row.row_key for row in after}
    changes = [Include.delete(key, "*") for key in sorted(left_out)]
    changes += [Include.insert_or_replace(row.row_key, row.properties()) for row in added]
    return after, changes


async def index_below(partition: Partition, kept_from: int) -> list[Row]:
    """Read the index rows whose versions are all below `kept_from`. Costs one request."""
    rows = await read_rows(partition, PREFIX, LAST, None)
    return [row for row in rows if read_index_row(row).last < kept_from]
