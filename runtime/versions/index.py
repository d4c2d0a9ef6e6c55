"""The index of message ids: tells which versions of a long history may be those of some messages.

Of each id a hash of four bytes is stored. Equal hashes do not mean equal ids, so a version that the index names is
looked up; an id whose hash is missing is unknown. The hashes are in rows between the header and the events, so that one
range query reads header and index and no event. A new row is merged with those before it that are at most twice as
large: there are O(log n) rows, and each hash is rewritten O(log n) times.

The hash is BLAKE2b with a random key, which the first row of a stream gets and later ones take over: no sender can make
ids that share a hash, and so make loads read runs without need.
"""

from __future__ import annotations

import re
import secrets
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

# Searching joined hashes. A batch looks for fifty or so ids in a history of a hundred thousand: comparing each hash in
# Python would cost more than everything else.

Search = Callable[[bytes], Iterator[int]]
"""Yields the positions of wanted hashes among joined ones."""

_FEW = 4
_SOME = 500
_GROUPS = 8
"""The bits of a byte: wanted hashes are filtered in so many groups."""

_NOT_ZERO = re.compile(rb"[^\0]")


def searching(wanted: frozenset[int]) -> Search:
    """Return the search for some hashes, to be used for each row of an index."""
    if len(wanted) <= _FEW:
        return lambda hashes: _by_bytes(hashes, wanted)
    if len(wanted) > _SOME:
        return lambda hashes: _by_set(hashes, wanted)
    # For each byte of a hash, the groups in which a wanted hash has each value of that byte.
    tables = [bytearray(256) for _ in range(HASH_BYTES)]
    for position, hash_ in enumerate(wanted):
        for table, value in zip(tables, pack([hash_]), strict=True):
            table[value] |= 1 << position % _GROUPS
    return lambda hashes: _by_filter(hashes, wanted, tables)


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


def _by_filter(hashes: bytes, wanted: frozenset[int], tables: Sequence[bytearray]) -> Iterator[int]:
    """Find the positions, all at once, where one group has all four bytes; compare these."""
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
LAST = PREFIX + "~"
"""The end of the index rows."""

_HASHES = chunk_names("Hashes", limits.MAX_INDEX_HASHES * HASH_BYTES // CHUNK)
_ENDS = chunk_names("Ends", 4)
PROPERTIES = ["First", "Count", "FirstEvent", "Key", *_ENDS, *_HASHES]
KEY_BYTES = 16
_DROPPED_AT_ONCE = 16


class VersionPosition(NamedTuple):
    """Where a version is: the event of its run, and its position in the run."""

    event: int
    position: int


@dataclass(frozen=True, slots=True)
class IndexRow:
    """The hashes of the ids of consecutive runs.

    `first` is the number of the first version, `first_event` the event of its run, `ends` the position after each run.
    `key` is that of the hashes.
    """

    first: int
    first_event: int
    ends: Sequence[int]
    id_hashes: bytes
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, first: int, event: int, ids: Collection[IdKey], key: bytes) -> IndexRow:
        """Return the row of a run alone: its first version, its event, and the ids of its messages."""
        return cls(first, event, [len(ids)], id_hashes_of(ids, key), key)

    @property
    def count(self) -> int:
        """How many versions are indexed."""
        return len(self.id_hashes) // HASH_BYTES

    @property
    def row_key(self) -> str:
        """The key of the row."""
        return f"{PREFIX}{self.first:016d}"

    @property
    def last(self) -> int:
        """The number of the last version."""
        return self.first + self.count - 1

    def takes(self, following: IndexRow) -> bool:
        """Return whether one row can hold this and the next one."""
        return self.key == following.key and self.count + following.count <= limits.MAX_INDEX_HASHES

    def merged(self, following: IndexRow) -> IndexRow:
        """Return one row for this and the next one."""
        ends = [*self.ends, *[self.count + end for end in following.ends]]
        return IndexRow(self.first, self.first_event, ends, self.id_hashes + following.id_hashes, self.key)

    def properties(self) -> dict[str, Value]:
        """Return the row's properties."""
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
        """Return where the version at a position of the row is."""
        number_of_run = bisect_right(self.ends, position)
        start = self.ends[number_of_run - 1] if number_of_run else 0
        return VersionPosition(self.first_event + number_of_run, position - start)


def read_index_row(row: Row) -> IndexRow:
    """Return an index row. Raises `StoredDataError`."""
    properties = row.properties
    with reading_row(f"The index row {row.row_key}", row):
        key = expect(properties["Key"], bytes)
        id_hashes = expect(join(properties, _HASHES), bytes)
        ends = unpack(expect(join(properties, _ENDS), bytes))
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
    """Return the hashes of message ids, joined."""
    begin = blake2b(key=key, digest_size=HASH_BYTES).copy
    hashes = []
    for each in ids:
        hash_ = begin()
        hash_.update(each if isinstance(each, bytes) else each.encode())
        hashes.append(hash_.digest())
    return b"".join(hashes)


def candidates(rows: Sequence[IndexRow], ids: Collection[IdKey]) -> Iterator[VersionPosition]:
    """Yield the places of versions that may be those of the messages with these ids, each at most once."""
    searches = {
        key: searching(frozenset(unpack(id_hashes_of(ids, key)))) for key in {row.key for row in rows}
    }
    for row in rows:
        for position in searches[row.key](row.id_hashes):
            yield row.locate(position)


def key_after(rows: Sequence[IndexRow]) -> bytes:
    """Return the key of the row that follows these: that of the newest, or a new one."""
    return rows[-1].key if rows else new_key()


def new_key() -> bytes:
    """Return an unpredictable key."""
    return secrets.token_bytes(KEY_BYTES)


def index_changes(
    rows: Sequence[IndexRow], runs: Sequence[IndexRow], kept_from: int
) -> tuple[list[IndexRow], list[Include]]:
    """Return the index rows after those of new runs were added, and the changes to write.

    Some rows of versions that are all below `kept_from` are dropped, if there are any.
    """
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
    """Read the index rows whose versions are all below `kept_from`. One request."""
    rows = await read_rows(partition, PREFIX, LAST, None)
    return [row for row in rows if read_index_row(row).last < kept_from]
