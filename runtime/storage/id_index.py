"""The index of message ids: tells which versions of a long history may be those of some messages.

Of each id a hash of four bytes is kept. Equal hashes do not mean equal ids, so a version that the index names is looked
up; an id whose hash is not there is unknown. The hashes of stored runs are in rows between the header and the events,
so that one range query reads header and index and no event. A new row is merged with the rows before it that are at
most twice as large: there are O(log n) rows, and each hash is rewritten O(log n) times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

from eventstore import Include, Int64, Partition, Row, Value
from runtime.errors import StoredDataError
from runtime.messages.message_ids import IdKey
from runtime.storage import limits
from runtime.storage.chunks import CHUNK, chunk_names, join, split
from runtime.storage.damage import expect, reading_row
from runtime.storage.id_search import pack, searching, unpack
from runtime.storage.limits import HASH_BYTES
from runtime.storage.properties import INT32, number
from runtime.storage.run import Run

PREFIX = "SS-IDX-"
LAST = PREFIX + "~"
"""The end of the index rows."""

_HASHES = chunk_names("Prints", limits.MAX_INDEX_HASHES * HASH_BYTES // CHUNK)
_ENDS = chunk_names("Ends", 4)
PROPERTIES = ["First", "Count", "FirstEvent", *_ENDS, *_HASHES]
_DROPPED_AT_ONCE = 16


class IndexedRun(NamedTuple):
    """A run that was or will be stored: how many versions it has, and the hashes of their messages' ids."""

    length: int
    id_hashes: bytes

    @classmethod
    def of(cls, run: Run) -> IndexedRun:
        """Return what is indexed of a run."""
        return cls(len(run.versions), id_hashes_of(run.ids))


class Candidate(NamedTuple):
    """A version that may be that of a message: the event of its run, and its position in the run."""

    key: IdKey
    event: int
    position: int


@dataclass(frozen=True, slots=True)
class IndexRow:
    """The hashes of the ids of consecutive runs.

    `first` is the number of the first version, `first_event` the event of its run, `ends` the position after each run.
    """

    first: int
    first_event: int
    ends: Sequence[int]
    id_hashes: bytes

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

    def merged(self, following: IndexRow) -> IndexRow:
        """Return one row for this and the next one."""
        ends = [*self.ends, *[self.count + end for end in following.ends]]
        return IndexRow(self.first, self.first_event, ends, self.id_hashes + following.id_hashes)

    def properties(self) -> dict[str, Value]:
        """Return the row's properties."""
        properties: dict[str, Value] = {
            "First": Int64(self.first),
            "Count": self.count,
            "FirstEvent": Int64(self.first_event),
        }
        split(properties, _ENDS, pack(self.ends))
        split(properties, _HASHES, self.id_hashes)
        return properties

    def place(self, position: int) -> tuple[int, int]:
        """Return the event of a version, and its position in the event's run."""
        number_of_run = bisect_right(self.ends, position)
        start = self.ends[number_of_run - 1] if number_of_run else 0
        return self.first_event + number_of_run, position - start


def read_index_row(row: Row) -> IndexRow:
    """Return an index row. Raises `StoredDataError`."""
    properties = row.properties
    with reading_row(f"The index row {row.row_key}", row):
        id_hashes = expect(join(properties, _HASHES), bytes)
        ends = unpack(expect(join(properties, _ENDS), bytes))
        index = IndexRow(number(properties, "First"), number(properties, "FirstEvent"), ends, id_hashes)
        count = number(properties, "Count", most=INT32)
    is_ascending = all(before < after for before, after in pairwise([0, *ends]))
    if not index.count == count == (ends[-1] if ends else 0) or not is_ascending:
        message = f"The index row {row.row_key} has hashes of {index.count} versions and counts {count}."
        raise StoredDataError(message, row.row_key, row.partition_key)
    return index


def id_hashes_of(keys: Iterable[IdKey]) -> bytes:
    """Return the hashes of message ids, joined."""
    return pack([_hash(key) for key in keys])


def candidates(rows: Sequence[IndexRow], keys: Collection[IdKey]) -> Iterator[Candidate]:
    """Give the versions that may be those of the messages with these ids."""
    wanted: dict[int, list[IdKey]] = defaultdict(list)
    for key in keys:
        wanted[_hash(key)].append(key)
    search = searching(wanted.keys())
    for row in rows:
        for hash_, position in search(row.id_hashes):
            for key in wanted[hash_]:
                yield Candidate(key, *row.place(position))


def index_changes(
    rows: Sequence[IndexRow], first: int, first_event: int, runs: Sequence[IndexedRun], kept_from: int
) -> tuple[list[IndexRow], list[Include]]:
    """Return the index rows after new runs were added, and the changes to write.

    Some rows of versions that are all below `kept_from` are dropped, if there are any.
    """
    gone = [row for row in rows if row.last < kept_from][:_DROPPED_AT_ONCE]
    kept = list(rows[len(gone) :])
    added = _rows_of(first, first_event, runs)
    while (
        kept
        and kept[-1].count <= 2 * added[0].count
        and kept[-1].count + added[0].count <= limits.MAX_INDEX_HASHES
    ):
        added[0] = kept.pop().merged(added[0])
    after = [*kept, *added]
    keys_before, keys_after = {row.row_key for row in rows}, {row.row_key for row in after}
    changes = [Include.delete(key, "*") for key in sorted(keys_before - keys_after)]
    changes += [Include.insert_or_replace(row.row_key, row.properties()) for row in added]
    return after, changes


async def index_below(partition: Partition, kept_from: int) -> list[Row]:
    """Read the index rows whose versions are all below `kept_from`. One request."""
    page = await partition.table.query(partition.key, PREFIX, LAST)
    return [row for row in page.rows if _end(row) <= kept_from]


def _end(row: Row) -> int:
    return read_index_row(row).last + 1


def _rows_of(first: int, first_event: int, runs: Sequence[IndexedRun]) -> list[IndexRow]:
    rows: list[IndexRow] = []
    for run in runs:
        row = IndexRow(first, first_event, [run.length], run.id_hashes)
        if rows and rows[-1].count + row.count <= limits.MAX_INDEX_HASHES:
            rows[-1] = rows[-1].merged(row)
        else:
            rows.append(row)
        first += run.length
        first_event += 1
    return rows


def _hash(key: IdKey) -> int:
    return crc32(key if isinstance(key, bytes) else key.encode())
