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
from eventstore.limits import MAX_OPERATIONS
from eventstore.listing import read_range
from runtime.cleanup.checked_partition import PartitionCheck
from runtime.cleanup.orphans import is_used_token, orphaned_tokens
from runtime.retries import READ_AGAIN
from runtime.storage.checking.fault import Fault, Repair

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
    checked, used_tokens = Checked(), []
    async for key, rows in _partitions(table, keys):
        check = PartitionCheck(key)
        async for row in rows:
            checked.rows += 1
            check.add(row)
            if is_used_token(row):
                used_tokens.append(row)
        faults = check.end()
        checked.streams += check.is_stream
        if faults:
            await _again(table, key, checked, faults, repair=repair)
    checked.add(await orphaned_tokens(table, used_tokens))
    return checked


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


async def _again(table: Table, key: str, checked: Checked, faults: list[Fault], *, repair: bool) -> None:
    """Read a partition by itself, and note what is wrong with it still: it may have been written to.

    Of one without a row that all who write it change, that is what is told by both readings.
    """
    check = PartitionCheck(key)
    async for page in pages(partial(table.query, key, "!", "~")):
        for row in page.rows:
            check.add(row)
    found, guard = check.end(), check.guard
    if guard is None or check.is_shared:
        found = [fault for fault in found if fault in faults]
    else:
        after = await table.get(key, guard.row_key)
        if after is None or after.etag != guard.etag:
            return
    if found:
        is_repaired = repair and await _repaired(table, key, guard, found, check.repair)
        checked.add(found, repaired=is_repaired)


async def _repaired(table: Table, key: str, guard: Row | None, found: list[Fault], repair: Repair) -> bool:
    """Mend a partition, unless it was written to meanwhile; say whether that was possible."""
    if not all(fault.repair for fault in found):
        return False
    row = {} if guard is None else repair.rows.pop(guard.row_key, guard.properties) or guard.properties
    changes, etag = repair.operations(), "" if guard is None else guard.etag
    try:
        for start in range(0, max(len(changes), 1), _CHANGES):
            some = changes[start : start + _CHANGES]
            first = [] if guard is None else [Operation.replace(guard.row_key, row, etag)]
            etag, *_ = await table.transact(key, [*first, *some])
    except (*READ_AGAIN, RowError, PayloadTooLargeError):
        return False
    return True
