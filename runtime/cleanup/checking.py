"""Checking a table: every row of it is read, and what belongs together is compared.

A stream or entity that seems to be damaged is read again by itself, as somebody may write to it. It is repaired as a
whole, when each of its faults can be, in one transaction if that holds the changes. Else nothing of it is changed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from eventstore import KeyRange, Operation, PayloadTooLargeError, Row, RowError, Table, pages
from eventstore.header import is_header, is_tombstone
from eventstore.limits import MAX_OPERATIONS
from eventstore.listing import read_range
from eventstore.partition import EVENT, HEADER
from runtime.algorithms.letters.of_table import PARTITION as LETTERS
from runtime.algorithms.letters.of_table import found_letter
from runtime.algorithms.outbox.checking import EntityCheck
from runtime.algorithms.outbox.entities import ENTITY
from runtime.batches import numbering
from runtime.batches.record import read_record
from runtime.batches.settings import OF_TABLE, read_settings
from runtime.cleanup import policies
from runtime.errors import StoredDataError
from runtime.retries import READ_AGAIN
from runtime.storage import id_index, letters
from runtime.storage.checking.fault import Fault, Repair
from runtime.storage.checking.stream import StreamCheck
from runtime.storage.head import is_of_state

_BESIDE = (id_index.PREFIX, letters.PREFIX)
"""How the keys of rows begin that only streams of states and entities have."""
_CHANGES = MAX_OPERATIONS - 1
MOST_FAULTS = 1000
"""How many faults of a range are kept, to be shown."""
_ALL = KeyRange()


@dataclass(slots=True)
class Checked:
    """What was looked at: rows and streams, the faults that are left, and those that are repaired.

    Of a range whose rows are damaged without number, the first faults are kept, and all are counted.
    """

    rows: int = 0
    streams: int = 0
    damaged: int = 0
    mended: int = 0
    faults: list[Fault] = field(default_factory=list)
    repaired: list[Fault] = field(default_factory=list)

    def add(self, found: Sequence[Fault], *, repaired: bool = False) -> None:
        """Take the faults of a partition."""
        kept = self.repaired if repaired else self.faults
        kept += found[: MOST_FAULTS - len(kept)]
        if repaired:
            self.mended += len(found)
        else:
            self.damaged += len(found)

    def update(self, other: Checked) -> None:
        """Add what was found elsewhere."""
        self.rows += other.rows
        self.streams += other.streams
        self.damaged += other.damaged
        self.mended += other.mended
        self.faults += other.faults
        self.repaired += other.repaired

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    @classmethod
    def of(cls, document: dict[str, Any]) -> Checked:
        """Return what a document says."""
        faults, repaired = ([Fault(**each) for each in document[name]] for name in ("faults", "repaired"))
        return cls(**{**document, "faults": faults, "repaired": repaired})


async def check_table(table: Table, keys: KeyRange = _ALL, *, repair: bool = False) -> Checked:
    """Check all rows of a range of partitions.

    Costs one request for each 1,000 rows or 4 MiB, and three or more for each partition that seems to be damaged.
    """
    checked = Checked()
    async for key, rows in _partitions(table, keys):
        check: StreamCheck | EntityCheck | None = None
        faults: list[Fault] = []
        has_header = False
        async for row in rows:
            checked.rows += 1
            has_header = has_header or (row.row_key == HEADER and _is_of_another(row))
            if check is not None:
                check.add(row)
                continue
            check = _begun(row)
            if check is None:
                faults += _of_row(row, has_header=has_header)
        if check is not None:
            checked.streams += isinstance(check, StreamCheck)
            faults += check.end()
        if faults:
            await _again(table, key, checked, faults, repair=repair)
    return checked


def _begun(row: Row) -> StreamCheck | EntityCheck | None:
    """Return the check of the object whose first row this is, None for any other row."""
    if row.row_key == HEADER and is_of_state(row.properties):
        return StreamCheck(row)
    return EntityCheck(row) if row.row_key == ENTITY else None


async def _partitions(table: Table, keys: KeyRange) -> AsyncIterator[tuple[str, AsyncIterator[Row]]]:
    """Give the partitions of a range, each with its rows, which must be taken before the next partition is."""
    rows = read_range(table, None, keys)
    waiting = [row] if (row := await anext(rows, None)) is not None else []

    async def of_partition(key: str) -> AsyncIterator[Row]:
        while waiting and waiting[0].partition_key == key:
            yield waiting.pop()
            following = await anext(rows, None)
            if following is not None:
                waiting.append(following)

    while waiting:
        key = waiting[0].partition_key
        yield key, of_partition(key)


def _of_row(row: Row, *, has_header: bool) -> list[Fault]:
    """Return what is wrong with a row that is of no stream of states and no entity."""
    try:
        _read(row)
    except StoredDataError as error:
        return [Fault(row.partition_key, row.row_key, error.problem)]
    if "-" not in row.partition_key:
        return []
    if row.row_key == HEADER and not has_header:
        return [Fault(row.partition_key, row.row_key, "is no header of a stream")]
    is_orphan = row.row_key.startswith(_BESIDE) or (row.row_key.startswith(EVENT) and not has_header)
    if is_orphan:
        return [Fault(row.partition_key, row.row_key, "belongs to a stream that has no header")]
    return []


def _is_of_another(header: Row) -> bool:
    """Say whether a header is that of a stream of somebody else's events, or of one that was deleted."""
    return is_header(header) or is_tombstone(header)


def _read(row: Row) -> None:
    if row.row_key.startswith(letters.PREFIX):
        letters.read_letters([row])
    elif row.partition_key == LETTERS:
        found_letter(row)
    elif row.partition_key == policies.PARTITION:
        policies.read_policy(row)
    elif row.partition_key == numbering.PARTITION and row.row_key == OF_TABLE:
        read_settings(row)
    elif row.partition_key == numbering.PARTITION and not row.row_key.startswith("!"):
        read_record(row)


async def _again(table: Table, key: str, checked: Checked, faults: list[Fault], *, repair: bool) -> None:
    """Read a partition by itself, and note what is wrong with it still: it may have been written to."""
    rows = [row async for page in pages(partial(table.query, key, "!", "~")) for row in page.rows]
    check = next((begun for row in rows if (begun := _begun(row)) is not None), None)
    if check is None:
        checked.add(faults)
        return
    first, *others = [row for row in rows if row.row_key >= check.row_key]
    for row in others:
        check.add(row)
    found = check.end()
    after = await table.get(key, first.row_key)
    if after is None or after.etag != first.etag:
        return
    if found:
        is_repaired = repair and await _repaired(table, first, found, check.repair)
        checked.add(found, repaired=is_repaired)


async def _repaired(table: Table, first: Row, found: list[Fault], repair: Repair) -> bool:
    """Mend a partition, unless it was written to meanwhile; say whether that was possible."""
    if not all(fault.repair for fault in found):
        return False
    row = repair.rows.pop(first.row_key, first.properties) or first.properties
    changes, etag = repair.operations(), first.etag
    try:
        for start in range(0, max(len(changes), 1), _CHANGES):
            header = Operation.replace(first.row_key, row, etag)
            some = changes[start : start + _CHANGES]
            (etag, *_) = await table.transact(first.partition_key, [header, *some])
    except (*READ_AGAIN, RowError, PayloadTooLargeError):
        return False
    return True
