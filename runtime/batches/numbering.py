"""Numbering: the rows of the ledger that tell, in few requests, which batches are open and which ended when.

Beside the row of each batch there are, in the same partition:

- the counter, `!next`: the number that the next batch gets, and the algorithm of the table;
- the settings of the table, `!of-table` (see `runtime.batches.settings`);
- a marker for each open batch, `!open-{id}`, from its begin to its end;
- a marker for each batch that ended, `!past-{time}-{id}`, until it is pruned. They are in the order of their ends, the
  last one first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from eventstore import Int64, Operation, Row, Table, Value, pages
from runtime.batches.open_batches import OpenBatches
from runtime.batches.record import BatchRecord, read_record
from runtime.batches.settings import LEDGER, OF_TABLE, TableSettings, read_settings
from runtime.clock import to_microseconds
from runtime.storage.damage import reading_row
from runtime.storage.properties import number, text

PARTITION = LEDGER
COUNTER, OPEN, PAST = "!next", "!open-", "!past-"

LAST = "~"
_END_OF_TIME = 10**16 - 1
_DIGITS = 16
_NOTHING_KEPT = TableSettings()


@dataclass(frozen=True, slots=True)
class Counter:
    """The counter of a ledger, or that of one without batches, which is not stored: `etag` is None.

    `algorithm` is that of the table's batches, of which `first_batch` was the first. `settings` are those of the table:
    they are read with the counter, and it does not store them.
    """

    next: int = 1
    algorithm: str | None = None
    first_batch: str = ""
    etag: str | None = None
    settings: TableSettings = _NOTHING_KEPT

    def operation(self) -> Operation:
        """Return what stores the counter, if nobody changed it since it was read."""
        properties: dict[str, Value] = {
            "Next": Int64(self.next),
            "FirstBatch": self.first_batch,
            "Algorithm": self.algorithm or "",
        }
        if self.etag is None:
            return Operation.insert(COUNTER, properties)
        return Operation.replace(COUNTER, properties, self.etag)


class Numbering:
    """The counter and the markers of one ledger."""

    def __init__(self, table: Table) -> None:
        self._table = table

    async def read(self) -> Counter:
        """Return the counter as it is stored, one without an ETag when there is none. Costs a request."""
        read = partial(self._table.query, PARTITION, COUNTER, OF_TABLE)
        rows = {row.row_key: row async for page in pages(read) for row in page.rows}
        counter = read_counter(rows[COUNTER]) if COUNTER in rows else Counter()
        return replace(counter, settings=read_settings(rows[OF_TABLE])) if OF_TABLE in rows else counter

    async def snapshot(self) -> tuple[OpenBatches, TableSettings]:
        """Return which batches are open, and the settings of the table. One request for each 1,000 open batches.

        The counter is read first, or at the same moment: a batch that it counts and that has no marker has ended.
        """
        next_, numbers, settings = 1, set(), _NOTHING_KEPT
        async for page in pages(partial(self._table.query, PARTITION, COUNTER, OPEN + LAST)):
            for row in page.rows:
                if row.row_key == COUNTER:
                    next_ = read_counter(row).next
                elif row.row_key == OF_TABLE:
                    settings = read_settings(row)
                else:
                    numbers.add(_number(row))
        return OpenBatches(next_, frozenset(numbers)), settings

    async def newest(self, limit: int) -> list[str]:
        """Return the ids of the newest batches, the open ones first.

        Costs a request for each 1,000 open batches, and one for each 1,000 others that are asked for.
        """
        markers: list[Row] = []
        async for page in pages(partial(self._table.query, PARTITION, OPEN, OPEN + LAST)):
            markers += page.rows
        ids = [id_of(row.row_key) for row in sorted(markers, key=_number, reverse=True)]
        async for page in pages(partial(self._table.query, PARTITION, PAST, PAST + LAST)):
            ids += [id_of(row.row_key) for row in page.rows]
            if len(ids) >= limit:
                break
        return ids[:limit]

    async def records(self) -> AsyncIterator[BatchRecord]:
        """Give all batches, by their rows, in the order of their ids. Costs a request for each 1,000."""
        async for page in pages(partial(self._table.query, PARTITION, "0", LAST)):
            for row in page.rows:
                yield read_record(row)

    async def past(self, before: int) -> Sequence[Row]:
        """Return markers of batches that ended before a time, in microseconds: up to 1,000. Costs a request."""
        first = f"{PAST}{_inverted(before - 1)}"
        return (await self._table.query(PARTITION, first, PAST + LAST)).rows


def began(record: BatchRecord) -> Operation:
    """Return what writes the marker of a batch that begins."""
    return Operation.insert_or_replace(OPEN + record.batch_id, {"Number": Int64(record.number)})


def ended(record: BatchRecord) -> list[Operation]:
    """Return what changes the markers when a batch ends, as it is then."""
    return [Operation.delete(OPEN + record.batch_id), past_marker(record)]


def pruned(markers: Sequence[Row]) -> list[Operation]:
    """Return what deletes batches with their markers. It fails when one is not there any more."""
    return [
        operation
        for marker in markers
        for operation in (Operation.delete(marker.row_key), Operation.delete(id_of(marker.row_key)))
    ]


def past_marker(record: BatchRecord) -> Operation:
    """Return what makes the marker of a batch that has ended."""
    time = _inverted(to_microseconds(record.updated_at))
    return Operation.insert_or_replace(f"{PAST}{time}-{record.batch_id}", {})


def _inverted(time: int) -> str:
    """Return a time in microseconds as text that is smaller for a later one. All before 1970 are one."""
    return f"{_END_OF_TIME - max(time, 0):0{_DIGITS}}"


def id_of(marker: str) -> str:
    """Return the id of the batch whose marker has this row key."""
    is_past = marker.startswith(PAST)
    return marker[len(PAST) + _DIGITS + 1 :] if is_past else marker.removeprefix(OPEN)


def _number(marker: Row) -> int:
    with reading_row("The marker of a batch", marker):
        return number(marker.properties, "Number")


def read_counter(row: Row) -> Counter:
    """Return the counter that a row holds. Raises `StoredDataError`."""
    values = row.properties
    with reading_row("The counter of batches", row):
        return Counter(
            next=number(values, "Next"),
            algorithm=text(values, "Algorithm"),
            first_batch=text(values, "FirstBatch"),
            etag=row.etag,
        )
