"""Numbering: the rows of the ledger that tell, in few requests, which batches are open and which ended when.

Beside the row of each batch there are, in the same partition:

- the counter, `!next`: the number that the next batch gets, and the algorithm of the table;
- the settings of the table, `!of-table` (see `runtime.batches.settings`);
- a marker for each open batch, `!open-{id}`, from its begin to its end;
- a marker for each batch that ended, `!past-{time}-{id}`, until it is pruned. They are in the order of their ends, the
  last one first.

A ledger of older code has the rows of batches only. It is looked through once: each transaction makes the markers of
some batches and notes in the counter how far that is, so that drivers who do it at once help each other, and one that
dies leaves the rest to the next. Nothing else is written to the ledger until that is done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from eventstore import (
    Int64,
    Operation,
    Row,
    RowChangedError,
    RowExistsError,
    Table,
    Value,
    pages,
)
from runtime.batches.open_batches import OpenBatches
from runtime.batches.record import BatchRecord, read_record
from runtime.batches.settings import LEDGER, OF_TABLE, TableSettings, read_settings
from runtime.clock import to_microseconds
from runtime.retries import RetryPolicy
from runtime.storage.damage import reading_row
from runtime.storage.properties import number, text

PARTITION = LEDGER
COUNTER, OPEN, PAST = "!next", "!open-", "!past-"
AND = " and "
"""Stands between the algorithms of a table that has several."""

_FIRST_BATCH, LAST = "0", "~"
_AT_ONCE = 99
_END_OF_TIME = 10**16 - 1
_DIGITS = 16
_NOTHING_KEPT = TableSettings()


@dataclass(frozen=True, slots=True)
class Counter:
    """The counter of a ledger, or that of one without batches, which is not stored: `etag` is None.

    `algorithm` is that of the table's batches, of which `first_batch` was the first. `looked_through` is the last
    batch of an older ledger that has its marker; None when all have. `settings` are those of the table, which are read
    with the counter and are not stored by it.
    """

    next: int = 1
    algorithm: str | None = None
    first_batch: str = ""
    looked_through: str | None = None
    etag: str | None = None
    settings: TableSettings = _NOTHING_KEPT

    @property
    def is_ready(self) -> bool:
        """Whether each batch has its marker."""
        return self.looked_through is None

    def with_batch(self, algorithm: str, batch_id: str) -> Counter:
        """Return the counter of a table that has a batch with this algorithm too."""
        if self.algorithm is None:
            return replace(self, algorithm=algorithm, first_batch=batch_id)
        if algorithm in self.algorithm.split(AND):
            return self
        return replace(self, algorithm=f"{self.algorithm}{AND}{algorithm}")

    def operation(self) -> Operation:
        """Return what stores the counter, if nobody changed it since it was read."""
        properties: dict[str, Value] = {"Next": Int64(self.next), "FirstBatch": self.first_batch}
        if self.algorithm is not None:
            properties["Algorithm"] = self.algorithm
        if self.looked_through is not None:
            properties["LookedThrough"] = self.looked_through
        if self.etag is None:
            return Operation.insert(COUNTER, properties)
        return Operation.replace(COUNTER, properties, self.etag)


class Numbering:
    """The counter and the markers of one ledger."""

    def __init__(self, table: Table, retries: RetryPolicy) -> None:
        self._table = table
        self._retries = retries

    async def read(self) -> Counter:
        """Return the counter as it is stored, one without an ETag when there is none. Costs a request."""
        read = partial(self._table.query, PARTITION, COUNTER, OF_TABLE)
        rows = {row.row_key: row async for page in pages(read) for row in page.rows}
        counter = read_counter(rows[COUNTER]) if COUNTER in rows else Counter()
        return replace(counter, settings=read_settings(rows[OF_TABLE])) if OF_TABLE in rows else counter

    async def ready(self) -> Counter:
        """Return the counter of a ledger whose batches have markers. Costs a request, unless older code wrote it.

        Raises `RetriesExhaustedError`.
        """
        counter = await self.read()
        if counter.etag is None:
            page = await self._table.query(PARTITION, _FIRST_BATCH, LAST)
            counter = replace(counter, looked_through="" if page.rows else None)
        return counter if counter.is_ready else await self._look_through(counter)

    async def snapshot(self) -> tuple[OpenBatches | None, TableSettings]:
        """Return what is open, and the settings of the table. Costs a request for each 1,000 open batches.

        With None for what is open, batches have no markers yet. The counter is read first, or at the same moment: a
        batch that it counts and that has no marker has ended.
        """
        next_, numbers, names, settings = None, set(), set(), _NOTHING_KEPT
        async for page in pages(partial(self._table.query, PARTITION, COUNTER, OPEN + LAST)):
            for row in page.rows:
                if row.row_key == COUNTER:
                    counter = read_counter(row)
                    next_ = counter.next if counter.is_ready else None
                elif row.row_key == OF_TABLE:
                    settings = read_settings(row)
                elif "Number" in row.properties:
                    numbers.add(_number(row))
                else:
                    names.add(row.row_key.removeprefix(OPEN))
        open_ = None if next_ is None else OpenBatches(next_, frozenset(numbers), frozenset(names))
        return open_, settings

    async def newest(self, limit: int) -> list[str] | None:
        """Return the ids of the newest batches, the open ones first; None when batches have no markers yet.

        Costs a request for each 1,000 open batches, one for each 1,000 others that are asked for, and one more.
        """
        counter = await self.read()
        if counter.etag is None or not counter.is_ready:
            return None
        ids = await self._open_ids()
        async for page in pages(partial(self._table.query, PARTITION, PAST, PAST + LAST)):
            ids += [id_of(row.row_key) for row in page.rows]
            if len(ids) >= limit:
                break
        return ids[:limit]

    async def records(self) -> AsyncIterator[BatchRecord]:
        """Give all batches, by their rows, in the order of their ids. Costs a request for each 1,000."""
        async for page in pages(partial(self._table.query, PARTITION, _FIRST_BATCH, LAST)):
            for row in page.rows:
                yield read_record(row)

    async def counted(self) -> Counter:
        """Return the counter that the rows of batches amount to. Costs a request for each 1,000 batches."""
        counter = Counter()
        async for record in self.records():
            counter = counter.with_batch(record.algorithm, record.batch_id)
        return counter

    async def past(self, before: int) -> Sequence[Row]:
        """Return markers of batches that ended before a time, in microseconds: up to 1,000. Costs a request."""
        first = f"{PAST}{_inverted(before - 1)}"
        return (await self._table.query(PARTITION, first, PAST + LAST)).rows

    async def _open_ids(self) -> list[str]:
        """Return the ids of all open batches, the newest first."""
        markers: list[Row] = []
        async for page in pages(partial(self._table.query, PARTITION, OPEN, OPEN + LAST)):
            markers += page.rows
        return [id_of(row.row_key) for row in sorted(markers, key=_number, reverse=True)]

    async def _look_through(self, counter: Counter) -> Counter:
        """Give the batches of an older ledger their markers."""
        tries = self._retries.start()
        while not counter.is_ready:
            try:
                counter = await self._mark(counter)
            except (RowChangedError, RowExistsError) as error:
                await tries.pause(error)
                counter = await self.read()
        return counter

    async def _mark(self, counter: Counter) -> Counter:
        """Make the markers of all batches after those that were looked through."""
        first = counter.looked_through or _FIRST_BATCH
        async for page in pages(partial(self._table.query, PARTITION, first, LAST)):
            records = [read_record(row) for row in page.rows if row.row_key != counter.looked_through]
            for some in _in_parts(records):
                for record in some:
                    counter = counter.with_batch(record.algorithm, record.batch_id)
                counter = replace(counter, looked_through=some[-1].batch_id)
                counter = await self._store(counter, [_marker(record) for record in some])
        return await self._store(replace(counter, looked_through=None), [])

    async def _store(self, counter: Counter, markers: Sequence[Operation]) -> Counter:
        etag, *_ = await self._table.transact(PARTITION, [counter.operation(), *markers])
        return replace(counter, etag=etag)


def began(record: BatchRecord) -> Operation:
    """Return what makes the marker of a batch that begins, or goes on."""
    properties = {} if record.number is None else {"Number": Int64(record.number)}
    return Operation.insert_or_replace(OPEN + record.batch_id, properties)


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


def _in_parts(records: Sequence[BatchRecord]) -> Iterator[Sequence[BatchRecord]]:
    return (records[start : start + _AT_ONCE] for start in range(0, len(records), _AT_ONCE))


def _marker(record: BatchRecord) -> Operation:
    return past_marker(record) if record.is_finished else began(record)


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
        return number(marker.properties, "Number", 0)


def read_counter(row: Row) -> Counter:
    """Return the counter that a row holds. Raises `StoredDataError`."""
    values = row.properties
    with reading_row("The counter of batches", row):
        return Counter(
            next=number(values, "Next"),
            algorithm=text(values, "Algorithm") if "Algorithm" in values else None,
            first_batch=text(values, "FirstBatch"),
            looked_through=text(values, "LookedThrough") if "LookedThrough" in values else None,
            etag=row.etag,
        )
