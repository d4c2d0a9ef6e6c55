"""What is kept of a publication is deleted with its batch, and a record with the business object that it names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial

from eventstore import Operation, Row, RowNotFoundError, Table, pages
from eventstore.limits import MAX_OPERATIONS
from runtime.batches.ledger import Ledger
from runtime.clock import Clock
from runtime.publishing.records import (
    LAST,
    PARTITION,
    Publication,
    Publications,
    publication_key,
    record_prefix,
    slice_prefix,
)
from runtime.storage.damage import reading_row
from runtime.storage.properties import text


async def prune_publications(table: Table, clock: Clock) -> int:
    """Delete what is kept of the publications of batches that the ledger has forgotten. Return how many.

    One of which a runner sends a slice stays. Costs two requests for each publication, and those that delete.
    """
    publications, ledger, count = Publications(table, clock), Ledger(table, clock), 0
    for each in [publication async for publication in publications.every()]:
        if await ledger.find(each.batch_id) is not None:
            continue
        slices = await publications.slices(each)
        if not any(found.lease.expires_at > clock() and not found.is_sent for found in slices.values()):
            await _delete(table, list(map(Operation.delete, await _row_keys_of(table, each))))
            count += 1
    return count


async def letters_of(table: Table, handler: str, business_id: str) -> list[Row]:
    """Return the records of publications that name a business object. A request for each 1,000 of all."""
    found = []
    async for row in _rows(table, record_prefix(), ["BusinessId", "Handler"]):
        with reading_row("The record of an output", row):
            named = text(row.properties, "Handler"), text(row.properties, "BusinessId")
        if named == (handler, business_id):
            found.append(row)
    return found


async def delete_letters(table: Table, letters: Sequence[Row]) -> None:
    """Delete records as they were read, unless somebody else has. One request for each 100.

    Raises `RowChangedError` when one was changed since.
    """
    await _delete(table, [Operation.delete(row.row_key, row.etag) for row in letters])


async def _row_keys_of(table: Table, publication: Publication) -> list[str]:
    """Return the keys of all rows of a publication, its own last: it is found as long as others are there."""
    prefixes = (slice_prefix(publication.key), record_prefix(publication.key))
    keys = [row.row_key for prefix in prefixes async for row in _rows(table, prefix, [])]
    return [*keys, publication_key(publication.key)]


async def _rows(table: Table, prefix: str, select: Sequence[str]) -> AsyncIterator[Row]:
    async for page in pages(partial(table.query, PARTITION, prefix, prefix + LAST, select=select)):
        for row in page.rows:
            yield row


async def _delete(table: Table, deletions: Sequence[Operation]) -> None:
    for start in range(0, len(deletions), MAX_OPERATIONS):
        some = deletions[start : start + MAX_OPERATIONS]
        try:
            await table.transact(PARTITION, some)
        except RowNotFoundError:  # somebody else deletes them too
            for deletion in some:
                with suppress(RowNotFoundError):
                    await table.transact(PARTITION, [deletion])
