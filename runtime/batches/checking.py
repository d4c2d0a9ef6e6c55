"""The ledger compared with itself: counter, markers and batches tell each other.

A marker can be made anew from its batch. The row of a batch stands nowhere else: where its marker is left without it,
versions of the batch may be unpublished, and the marker stays.
"""

from __future__ import annotations

from collections import Counter as Counted
from dataclasses import dataclass

from eventstore import Int64, Properties, Row
from runtime.batches.numbering import (
    AND,
    COUNTER,
    OPEN,
    PARTITION,
    PAST,
    Counter,
    began,
    id_of,
    past_marker,
    read_counter,
)
from runtime.batches.record import BatchRecord, read_record
from runtime.batches.settings import OF_TABLE, read_settings
from runtime.errors import BatchRefusedError, StoredDataError
from runtime.storage.checking.fault import Fault, Repair

_LARGEST = 2**62
"""No table has so many batches: such a number is damaged, and the counter does not follow it."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """What a batch should be told by elsewhere."""

    marker: str
    properties: Properties
    number: int | None
    algorithm: str

    @classmethod
    def of(cls, record: BatchRecord) -> _Batch:
        marker = past_marker(record) if record.is_finished else began(record)
        return cls(marker.row_key, marker.properties, record.number, record.algorithm)


class LedgerCheck:
    """Takes the rows of the ledger in the order of their keys. Memory grows with the batches by some hundred bytes."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.repair = Repair()
        self.guard: Row | None = None
        self._counter: Counter | None = None
        self._markers: dict[str, Properties] = {}
        self._batches: dict[str, _Batch] = {}
        self._unreadable: set[str] = set()

    def add(self, row: Row) -> None:
        """Take a row."""
        try:
            self._add(row)
        except (StoredDataError, BatchRefusedError) as error:
            self._unreadable.add(row.row_key)
            self._tell(row.row_key, error.problem if isinstance(error, StoredDataError) else str(error))

    def _add(self, row: Row) -> None:
        if row.row_key == COUNTER:
            self.guard, self._counter = row, read_counter(row)
        elif row.row_key == OF_TABLE:
            read_settings(row)
        elif row.row_key.startswith((OPEN, PAST)):
            self._markers[row.row_key] = row.properties
        else:
            self._batches[row.row_key] = _Batch.of(read_record(row))

    def end(self) -> list[Fault]:
        """Compare the rows, and return all faults."""
        counter = self._counter
        if counter is None and COUNTER not in self._unreadable and self._is_numbered():
            self._tell(COUNTER, "is gone, and batches have numbers")
        if counter is not None:
            self._check_counter(counter)
        if counter is not None and counter.is_ready:
            self._check_markers()
        return self.faults

    def _is_numbered(self) -> bool:
        return bool(self._markers) or any(batch.number is not None for batch in self._batches.values())

    def _check_counter(self, counter: Counter) -> None:
        numbers = [batch.number for batch in self._batches.values() if batch.number is not None]
        last = max(numbers, default=0)
        if counter.next <= last:
            text = f"gives the number {counter.next} next, and a batch has {last}"
            self._tell(COUNTER, text, repair=last < _LARGEST)
            if self.guard is not None:
                self.repair.rows[COUNTER] = {**self.guard.properties, "Next": Int64(last + 1)}
        named = (counter.algorithm or "").split(AND)
        for batch_id, batch in self._batches.items():
            if counter.is_ready and batch.algorithm not in named:
                self._tell(
                    batch_id, f"has the algorithm {batch.algorithm}, and the table {counter.algorithm}"
                )
        if bool(counter.algorithm) != bool(counter.first_batch):
            self._tell(COUNTER, "names no algorithm of its first batch")
        for number, count in Counted(numbers).items():
            if count > 1:
                several = sorted(key for key, batch in self._batches.items() if batch.number == number)
                self._tell(several[-1], f"has the number {number}, as {several[0]} has")

    def _check_markers(self) -> None:
        left = dict(self._markers)
        marked = {id_of(marker) for marker in left}
        for batch_id, batch in self._batches.items():
            found = left.pop(batch.marker, None)
            if found is None:
                self._tell(batch_id, f"has no marker {batch.marker}", repair=batch_id not in marked)
            elif not _is_same(found, batch.properties):
                is_certain = batch.number is not None and not isinstance(found.get("Number"), Int64)
                self._tell(batch.marker, "has another number than its batch", repair=is_certain)
            else:
                continue
            self.repair.rows[batch.marker] = batch.properties
        for marker in left:
            self._check_left(marker, id_of(marker))

    def _check_left(self, marker: str, batch_id: str) -> None:
        """Tell of a marker that it is not that of a batch. One that a batch has left which ended can go."""
        if batch_id in self._batches:
            self._tell(marker, f"is not the marker of the batch {batch_id}")
        elif batch_id not in self._unreadable:
            is_needless = marker.startswith(PAST)
            self._tell(marker, f"belongs to a batch that is not there, {batch_id!r}", repair=is_needless)
            self.repair.rows[marker] = None

    def _tell(self, row_key: str, problem: str, *, repair: bool = False) -> None:
        self.faults.append(Fault(PARTITION, row_key, problem, repair))


def _is_same(found: Properties, expected: Properties) -> bool:
    return found == expected and all(type(found[name]) is type(value) for name, value in expected.items())
