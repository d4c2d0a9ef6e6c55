"""Checking a table: every row of it is read, and what belongs together is compared.

A stream that seems to be damaged is read again by itself, as somebody may write to it. Nothing is written but the rows
that are repaired: the index of a stream is made anew from its runs. Whatever else is damaged is told, and left alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from eventstore import KeyRange, Partition, Row, RowError, Stream, Table, pages
from eventstore.listing import read_range
from eventstore.partition import EVENT, HEADER
from runtime.algorithms.letters.of_table import PARTITION as LETTERS
from runtime.algorithms.letters.of_table import found_letter
from runtime.algorithms.outbox.entities import ENTITY
from runtime.algorithms.outbox.entity import read_entity
from runtime.batches import numbering
from runtime.batches.record import read_record
from runtime.batches.settings import OF_TABLE, read_settings
from runtime.cleanup import policies
from runtime.errors import StoredDataError
from runtime.retries import READ_AGAIN
from runtime.storage import id_index, letters
from runtime.storage.checking import Fault, StreamCheck, repair_index
from runtime.storage.damage import reading_row
from runtime.storage.head import is_of_state
from runtime.storage.properties import number

_OF_STREAMS = (EVENT, id_index.PREFIX)
_ALL = KeyRange()


@dataclass(slots=True)
class Checked:
    """What was looked at: rows and streams, the faults that were found, and those that are repaired."""

    rows: int = 0
    streams: int = 0
    faults: list[Fault] = field(default_factory=list)
    repaired: list[Fault] = field(default_factory=list)


async def check_table(table: Table, keys: KeyRange = _ALL, *, repair: bool = False) -> Checked:
    """Check all rows of a range of partitions.

    Costs one request for each 1,000 rows or 4 MiB, and three or more for each partition that seems to be damaged.
    """
    checked = Checked()
    async for key, rows in _partitions(table, keys):
        check: StreamCheck | None = None
        faults: list[Fault] = []
        has_header = False
        async for row in rows:
            checked.rows += 1
            has_header = has_header or row.row_key in (HEADER, ENTITY)
            if row.row_key == HEADER and is_of_state(row.properties):
                check = StreamCheck(row)
                checked.streams += 1
            elif check is not None:
                check.add(row)
            else:
                faults += _of_row(row, has_header=has_header)
        if check is not None:
            faults += check.end()
        if faults:
            await _again(table, key, checked, faults, repair=repair)
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


def _of_row(row: Row, *, has_header: bool) -> list[Fault]:
    """Return what is wrong with a row that is of no stream."""
    try:
        _read(row)
    except StoredDataError as error:
        return [Fault(row.partition_key, row.row_key, error.problem)]
    is_orphan = row.row_key.startswith(_OF_STREAMS) or row.row_key.startswith(letters.PREFIX)
    if is_orphan and not has_header and "-" in row.partition_key:
        return [Fault(row.partition_key, row.row_key, "belongs to a stream that has no header")]
    return []


def _read(row: Row) -> None:
    if row.row_key == ENTITY:
        entity = read_entity(row)
        with reading_row("The entity", row):
            if number(row.properties, "Pending") != entity.pending:
                message = f"it counts other than {entity.pending} unfinished messages"
                raise ValueError(message)
    elif row.row_key.startswith(letters.PREFIX):
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
    before = await table.get(key, HEADER)
    rows = [row async for page in pages(partial(table.query, key, "!", "~")) for row in page.rows]
    after = await table.get(key, HEADER)
    if before is None or after is None or not is_of_state(before.properties):
        checked.faults += faults
        return
    if before.etag != after.etag:
        return
    check = StreamCheck(before)
    for row in rows:
        check.add(row)
    found = check.end()
    index = check.rebuilt_index() if repair and found else None
    if index is None:
        checked.faults += found
        return
    try:
        stream = await Stream.try_open(Partition.exact(table, key))
        if stream is not None and stream.etag == before.etag:
            old = [row.row_key for row in rows if row.row_key.startswith(id_index.PREFIX)]
            await repair_index(stream, old, index)
            checked.repaired += found
    except (*READ_AGAIN, RowError):
        checked.faults += found
