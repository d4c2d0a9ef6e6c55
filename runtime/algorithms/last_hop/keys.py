"""Keys of deliveries, one for each customer and message, and the records of how deliveries ended.

A key is *unlocked* when it is absent or has expired, *locked* while a delivery is sending, or *sealed*. The delivery
that locked it has a name that no other delivery has; only that one may seal or unlock it. Keys and records of a
customer share a partition, so that sealing and recording is one transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from enum import IntEnum
from functools import partial
from typing import NamedTuple, Protocol

from eventstore import Operation, Properties, Row, RowError, Table, pages
from eventstore.backoff import Sleep, sleep_beside
from runtime.algorithms.row_keys import FIRST, LAST, row_key
from runtime.clock import to_datetime, to_microseconds
from runtime.messages.message_ids import IdKey, canonical, id_key
from runtime.storage.damage import expect, reading_row
from runtime.storage.properties import number, text, time

PARTITION = "deliveries."
"""Begins the partition keys of customers."""

RECORD = "REC-"
_RECORD_LAST = "REC~"


class KeyState(IntEnum):
    """What the value of a key says."""

    LOCKED = 0
    SEALED = 1


class DeliveryKey(NamedTuple):
    """One message to one customer."""

    customer: str
    message: IdKey

    @classmethod
    def of(cls, customer: str, message_id: str) -> DeliveryKey:
        """Return the key for a message id in any spelling."""
        return cls(customer, id_key(canonical(message_id)))


class Key(NamedTuple):
    """A key as it is stored: its state, the delivery that holds it, when it expires, in microseconds, and its ETag."""

    state: KeyState
    holder: str
    expires_at: int
    etag: str


class Record(NamedTuple):
    """How one delivery ended: the end, why, and when, in microseconds."""

    end: str
    why: str | None
    at: int


class Keys(Protocol):
    """What a store of keys does: each call is atomic, and reads see what was written before.

    A store that did not answer raises `StoreUnavailableError`, and may have done what it was asked for all the same.
    """

    @property
    def sleep(self) -> Sleep:
        """How to wait before a call is repeated."""
        ...

    async def put(
        self, key: DeliveryKey, state: KeyState, holder: str, expires_at: int, over: Key | None = None
    ) -> Key | None:
        """Put a key there if it is absent, or over the one that was read; return None when another is there."""
        ...

    async def get(self, key: DeliveryKey) -> Key | None:
        """Read a key."""
        ...

    async def end(
        self, key: DeliveryKey, held: Key | None, sealed_until: int | None, record: Record, name: str
    ) -> bool:
        """Record an end under a name, and seal the held key until a time, or unlock it when there is none.

        All or nothing: False says that the key is held by another now, and nothing was done. Without a key the end is
        only recorded.
        """
        ...

    async def end_of(self, key: DeliveryKey, holder: str) -> Record | None:
        """Return how the delivery ended that sealed a key, None when it left no record."""
        ...


class DeliveryKeys:
    """Keys and records in a table, a partition for each customer. Reads must be strongly consistent.

    Costs one request for each call; `records`, `unrecorded` and `forget_expired` one for each 1,000 rows.
    """

    def __init__(self, table: Table) -> None:
        self.table = table

    @property
    def sleep(self) -> Sleep:
        """How to wait beside the table."""
        return sleep_beside(self.table)

    async def put(
        self, key: DeliveryKey, state: KeyState, holder: str, expires_at: int, over: Key | None = None
    ) -> Key | None:
        """Put a key there if it is absent, or over the one that was read; return None when another is there.

        Either way, what is there on return is durable.
        """
        properties = _properties(state, holder, expires_at)
        name = row_key(key.message)
        change = (
            Operation.insert(name, properties)
            if over is None
            else Operation.replace(name, properties, over.etag)
        )
        try:
            (etag,) = await self.table.transact(PARTITION + key.customer, [change])
        except RowError:
            # The key that is there may be this delivery's own, put there by a call that was not answered.
            await self.table.barrier()
            return None
        await self.table.barrier()
        return Key(state, holder, expires_at, etag)

    async def get(self, key: DeliveryKey) -> Key | None:
        """Read a key, also one that has expired."""
        row = await self.table.get(PARTITION + key.customer, row_key(key.message))
        return None if row is None else read_key(row)

    async def end(
        self, key: DeliveryKey, held: Key | None, sealed_until: int | None, record: Record, name: str
    ) -> bool:
        """Record an end under a name, and seal the held key until a time, or unlock it when there is none.

        All or nothing: False says that the key is held by another now, and nothing was done. Without a key the end is
        only recorded.
        """
        changes = [Operation.insert_or_replace(f"{RECORD}{name}", _record_properties(key, record))]
        if held is not None and sealed_until is None:
            changes.append(Operation.delete(row_key(key.message), held.etag))
        elif held is not None and sealed_until is not None:
            sealed = _properties(KeyState.SEALED, held.holder, sealed_until)
            changes.append(Operation.replace(row_key(key.message), sealed, held.etag))
        try:
            await self.table.transact(PARTITION + key.customer, changes)
        except RowError:
            return False
        await self.table.barrier()
        return True

    async def end_of(self, key: DeliveryKey, holder: str) -> Record | None:
        """Return how the delivery ended that sealed a key, None when it left no record."""
        row = await self.table.get(PARTITION + key.customer, f"{RECORD}{holder}")
        return None if row is None else read_record(row)

    async def records(self, customer: str) -> AsyncIterator[Record]:
        """Give the records of a customer."""
        async for row in self._rows(customer, RECORD, _RECORD_LAST):
            yield read_record(row)

    async def unrecorded(self, customer: str) -> AsyncIterator[str]:
        """Give the row keys of a customer's sealed keys whose deliveries left no record.

        Under at most once these are deliveries that crashed while they sent, and those that are sending now.
        """
        recorded = {row.row_key async for row in self._rows(customer, RECORD, _RECORD_LAST)}
        async for row in self._rows(customer, FIRST, LAST):
            key = read_key(row)
            if key.state is KeyState.SEALED and f"{RECORD}{key.holder}" not in recorded:
                yield row.row_key

    async def forget_expired(self, customer: str, now: int) -> int:
        """Delete the keys of a customer that have expired by a time, in microseconds. Return how many.

        Costs one request more for each key.
        """
        forgotten = 0
        async for row in self._rows(customer, FIRST, LAST):
            if read_key(row).expires_at <= now:
                with suppress(RowError):
                    await self.table.transact(PARTITION + customer, [Operation.delete(row.row_key, row.etag)])
                    forgotten += 1
        return forgotten

    async def _rows(self, customer: str, first: str, last: str) -> AsyncIterator[Row]:
        async for page in pages(partial(self.table.query, PARTITION + customer, first, last)):
            for row in page.rows:
                yield row


def _properties(state: KeyState, holder: str, expires_at: int) -> Properties:
    return {"Value": int(state), "Holder": holder, "ExpiresAt": to_datetime(expires_at)}


def _record_properties(key: DeliveryKey, record: Record) -> Properties:
    properties: Properties = {"Key": row_key(key.message), "End": record.end, "At": to_datetime(record.at)}
    return properties if record.why is None else {**properties, "Why": record.why}


def read_record(row: Row) -> Record:
    """Return how the delivery ended that a row tells. Raises `StoredDataError`."""
    with reading_row("The record of a delivery", row):
        why = row.properties.get("Why")
        at = to_microseconds(time(row.properties, "At"))
        return Record(text(row.properties, "End"), expect(why, str, None), at)


def read_key(row: Row) -> Key:
    """Return the key that a row holds. Raises `StoredDataError`."""
    properties = row.properties
    with reading_row("The key of a delivery", row):
        return Key(
            KeyState(number(properties, "Value")),
            text(properties, "Holder"),
            to_microseconds(time(properties, "ExpiresAt")),
            row.etag,
        )
