"""Importing a table: the rows of an export, into a table that is empty.

All files are verified before anything is written, and all rows are read back afterwards. While it is written to, the
table has a row that says so, with the number of files that are done: an import that was broken off goes on there when
it is run again, and no other export is taken in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from eventstore import Int64, Operation, Row, RowExistsError, Table, Value
from eventstore.limits import MAX_OPERATIONS, SURELY_SMALL_BYTES, prepare_row
from eventstore.port import CommitsTogether, Transaction
from runtime.archives import MARK
from runtime.archives.digest import SetDigest, packed_row
from runtime.archives.exporting import Tell, all_pages
from runtime.archives.manifest import Manifest
from runtime.archives.rows import read_rows
from runtime.errors import ArchiveError
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.storage.properties import number

_ROW = "IMPORT"
_IN_FLIGHT = 16


async def import_table(table: Table, name: str, folder: Path, manifest: Manifest, tell: Tell) -> None:
    """Write the rows of an export, whose files were checked, into a table that is empty, and read them back.

    Costs a transaction for each 100 rows of a partition, and one request for each 1,000 rows. Raises `ArchiveError`
    when the table holds other rows, or was written to meanwhile.
    """
    done = await _begin(table, name, manifest)
    skipped = sum(file.rows for file in manifest.files[:done])
    for index in range(done, len(manifest.files)):
        skipped += await _write_file(table, folder / manifest.files[index].name, skipped, tell)
        mark = Operation.merge(_ROW, {"Files": index + 1})
        await table.transact(MARK, [mark])
    await table.barrier()
    await _check_rows(table, name, manifest, tell)
    await table.transact(MARK, [Operation.delete(_ROW)])
    await table.barrier()


async def _begin(table: Table, name: str, manifest: Manifest) -> int:
    """Mark an empty table as one that is imported, and return how many files an earlier attempt has written."""
    mark = await table.get(MARK, _ROW)
    if mark is None:
        async for page in all_pages(table, keys_only=True):
            if page.rows:
                raise ArchiveError(f"The table {name} is not empty: import into another one.")
        try:
            await _mark(table, manifest)
        except RowExistsError:
            raise ArchiveError(f"Somebody else imports into the table {name} at this moment.") from None
        return 0
    if mark.properties.get("Digest") != manifest.digest:
        raise ArchiveError(
            f"The import of another export into the table {name} was broken off: finish that, or import into "
            "another table."
        )
    return number(mark.properties, "Files")


async def _mark(table: Table, manifest: Manifest) -> None:
    mark: dict[str, Value] = {"Digest": manifest.digest, "Rows": Int64(manifest.rows), "Files": 0}
    await table.transact(MARK, [Operation.insert(_ROW, mark)])


async def _write_file(table: Table, path: Path, before: int, tell: Tell) -> int:
    written = 0
    for rows in read_rows(path):
        await _write(table, list(transactions(rows)))
        written += len(rows)
        tell("Writing", before + written)
    return written


def transactions(rows: Iterable[Row]) -> Iterator[Transaction]:
    """Cut rows, in their order, into transactions that are surely within the limits."""
    partition, size = "", 0
    operations: list[Operation] = []
    for row in rows:
        bytes_ = prepare_row(row.properties)[1]
        is_full = len(operations) == MAX_OPERATIONS or size + bytes_ > SURELY_SMALL_BYTES
        if operations and (is_full or row.partition_key != partition):
            yield partition, operations
            operations, size = [], 0
        partition = row.partition_key
        operations.append(Operation.insert_or_replace(row.row_key, row.properties))
        size += bytes_
    if operations:
        yield partition, operations


async def _write(table: Table, waiting: Sequence[Transaction]) -> None:
    """Carry out transactions that may be repeated: together where the table can, else several at a time."""
    retries = RetryPolicy().beside(table)
    if isinstance(table, CommitsTogether):
        results = await until_undisturbed(retries, partial(table.transact_each, waiting))
        for error in results:
            if isinstance(error, Exception):
                raise error
        return
    slots = asyncio.Semaphore(_IN_FLIGHT)

    async def carry_out(transaction: Transaction) -> None:
        async with slots:
            await until_undisturbed(retries, partial(table.transact, *transaction))

    try:
        async with asyncio.TaskGroup() as group:
            for transaction in waiting:
                group.create_task(carry_out(transaction))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _check_rows(table: Table, name: str, manifest: Manifest, tell: Tell) -> None:
    found = SetDigest()
    async for page in all_pages(table):
        for row in page.rows:
            if row.partition_key != MARK:
                found.add(packed_row(row))
        tell("Reading back", found.count)
    if (found.count, found.hexdigest()) != (manifest.rows, manifest.digest):
        raise ArchiveError(
            f"The table {name} holds {found.count} rows that are not the {manifest.rows} of the export: somebody "
            "else has written to it. Import into another table."
        )
