"""The index of a stream compared with its runs: each id's hash stands at the place of its version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from runtime.messages.message_ids import IdKey
from runtime.storage.checking.runs import Place
from runtime.storage.id_index import IndexRow, id_hashes_of, index_changes, key_after
from runtime.storage.limits import HASH_BYTES


class IndexCheck:
    """Takes the index rows of a stream, and then its runs.

    A hash that differs alone may be that of a damaged id: then the index is not to be made from the ids. Where all
    hashes of a row differ, it is the row that is damaged.
    """

    def __init__(self) -> None:
        self.rows: list[IndexRow] = []
        self.row_keys: list[str] = []
        self.unreadable: dict[str, str] = {}
        self._key: bytes | None = None
        self._runs: dict[int, IndexRow] = {}
        self._misplaced: set[int] = set()
        self._compared: Counter[str] = Counter()
        self._differing: Counter[str] = Counter()

    def add_run(self, event: int, first: int, ids: Sequence[IdKey]) -> None:
        """Take a run, and compare it."""
        self._key = self._key or key_after(self.rows)
        self._runs[event] = IndexRow.of(first, event, ids, self._key)
        row = next((row for row in self.rows if _has_place(row, event, first, len(ids))), None)
        if row is None:
            self._misplaced.add(event)
            return
        start = (first - row.first) * HASH_BYTES
        stored = row.id_hashes[start : start + len(ids) * HASH_BYTES]
        self._compared[row.row_key] += len(ids)
        self._differing[row.row_key] += sum(
            one != other for one, other in zip(_each(stored), _each(id_hashes_of(ids, row.key)), strict=True)
        )

    def doubtful(self, *, is_header_wrong: bool) -> list[str]:
        """Return the rows with hashes that differ from those of the ids, where either may be damaged.

        Where the header does not agree with the runs either, it may be the runs that are others.
        """
        return [
            key
            for key, count in self._differing.items()
            if count and (count < self._compared[key] or count == 1 or is_header_wrong)
        ]

    def agrees(self, kept: Sequence[Place], kept_from: int) -> bool:
        """Say whether the rows have all runs that are kept, each at its place, and nothing else."""
        index = [row for row in self.rows if row.last >= kept_from]
        if self.unreadable or sorted(self.row_keys) != [row.row_key for row in self.rows]:
            return False
        if not kept or not index:
            return not kept and not index
        is_whole = index[0].first <= kept[0].first and index[-1].last == kept[-1].last
        has_no_gap = all(before.last + 1 == after.first for before, after in pairwise(index))
        is_indexed = not self._misplaced.intersection(place.event for place in kept)
        return is_whole and has_no_gap and is_indexed and not any(self._differing.values())

    def rebuilt(self, kept: Sequence[Place]) -> list[IndexRow]:
        """Return the index that the runs that are kept amount to."""
        runs = [self._runs[place.event] for place in kept]
        return index_changes([], runs, 0)[0] if runs else []


def _has_place(row: IndexRow, event: int, first: int, count: int) -> bool:
    start = first - row.first
    return (
        start >= 0
        and start + count <= row.count
        and row.place(start) == (event, 0)
        and row.place(start + count) == (event + 1, 0)
    )


def _each(hashes: bytes) -> Iterator[bytes]:
    return (hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES))
