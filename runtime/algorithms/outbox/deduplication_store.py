"""The de-duplication store: which messages were processed, kept apart from the entities.

Its table may be another one than that of the entities, also in another account or region. Reads must be strongly
consistent: once `add` has returned, every `find` sees the message, wherever it is called. Azure Table Storage reads
strongly consistently in its primary region; Cosmos DB does so only when it is configured to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from eventstore import Operation, Row, RowNotFoundError, Table, pages
from eventstore.limits import MAX_OPERATIONS
from runtime.algorithms.row_keys import FIRST, LAST, row_key
from runtime.clock import Clock, system_clock, to_datetime, to_microseconds
from runtime.messages.message_ids import IdKey
from runtime.storage.damage import expect, reading_row
from runtime.storage.properties import time


class DeduplicationStore:
    """The fingerprints of processed messages, by the key of their entity and their id: one row for each message."""

    def __init__(self, table: Table, clock: Clock = system_clock) -> None:
        self.table = table
        self._clock = clock

    async def find(self, entity: str, message_id: IdKey) -> bytes | None:
        """Return the fingerprint of a message that was processed, None when it was not. Costs one request."""
        row = await self.table.get(entity, row_key(message_id))
        if row is None:
            return None
        return _fingerprint(row)

    async def add(self, entity: str, fingerprints: Mapping[IdKey, bytes]) -> None:
        """Add messages by their ids; return when that is durable. Adding them again changes nothing but their age.

        Costs one request for each 100 messages.
        """
        added_at = to_datetime(self._clock())
        rows = [
            Operation.insert_or_replace(row_key(key), {"Fingerprint": fingerprint, "AddedAt": added_at})
            for key, fingerprint in fingerprints.items()
        ]
        for at in range(0, len(rows), MAX_OPERATIONS):
            await self.table.transact(entity, rows[at : at + MAX_OPERATIONS])
        await self.table.barrier()

    async def remove(self, entity: str, message_ids: Iterable[IdKey]) -> None:
        """Forget messages of an entity, as far as they are there. Costs one request for each."""
        for message_id in message_ids:
            await self._forget(entity, [row_key(message_id)])

    async def evict(self, entity: str, latest: int, *, dry_run: bool = False) -> int:
        """Forget the messages of an entity that were added at a time, in microseconds, or before. Return how many.

        With `dry_run` none is forgotten. Costs one request for each 1,000 messages, and one for each 100 forgotten.
        """
        forgotten = 0
        async for page in pages(partial(self.table.query, entity, FIRST, LAST, select=["AddedAt"])):
            old = [row.row_key for row in page.rows if _added_at(row) <= latest]
            for at in range(0, len(old), MAX_OPERATIONS):
                some = old[at : at + MAX_OPERATIONS]
                forgotten += len(some) if dry_run else await self._forget(entity, some)
        return forgotten

    async def _forget(self, entity: str, row_keys: list[str]) -> int:
        """Delete rows in one transaction; none of them when somebody else has deleted one."""
        try:
            await self.table.transact(entity, [Operation.delete(key) for key in row_keys])
        except RowNotFoundError:
            return 0
        return len(row_keys)


def check_processed(row: Row) -> None:
    """Raise `StoredDataError` for the row of a processed message that cannot be read."""
    _fingerprint(row)
    _added_at(row)


def _fingerprint(row: Row) -> bytes:
    with reading_row("The processed message", row):
        return bytes(expect(row.properties["Fingerprint"], bytes))


def _added_at(row: Row) -> int:
    with reading_row("The processed message", row):
        return to_microseconds(time(row.properties, "AddedAt"))
