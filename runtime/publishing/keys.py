"""Keys of the last hop, one for each customer and message, in a table; `redis_keys` has them in Redis.

A key is *unlocked* when it is absent or has expired, *locked* (0) while a delivery sends, or *sealed* (1). It names the
delivery that holds it, and once sealed says how that one ended. Every change is bound to the key as it was read, so
only the holder of a lock seals or unlocks it.
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

_PARTITIONS_END = "deliveries/"
"""The first partition key after those of customers."""


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
    """A key as it is stored."""

    state: KeyState
    holder: str
    """The delivery that locked or sealed it."""
    expires_at: int
    """In microseconds since 1970 UTC."""
    end: str | None = None
    """How the delivery ended that sealed it, None while it sends, and for ever if it died."""
    why: str | None = None
    etag: str = ""


class Keys(Protocol):
    """What a store of keys does. Each call is atomic, and reads see what was written before.

    A store that did not answer raises `StoreUnavailableError`, and may have done what it was asked for.
    """

    @property
    def sleep(self) -> Sleep:
        """How to wait before a call is repeated."""
        ...

    async def get(self, key: DeliveryKey) -> Key | None:
        """Read a key. One that has expired may still be there."""
        ...

    async def put(self, key: DeliveryKey, new: Key, over: Key | None = None) -> Key | None:
        """Store a key if there is none, or over the one that was read; None when another is there.

        What is there on return is durable.
        """
        ...

    async def delete(self, key: DeliveryKey, found: Key) -> None:
        """Delete a key, unless it is another by now than the one that was read."""
        ...

    def unended(self) -> AsyncIterator[tuple[str, str]]:
        """Yield customer and message of each sealed key that says no end.

        At most once these are deliveries whose process died while it sent, and those that send now.
        """
        ...


class TableKeys:
    """Keys in a table, a partition for each customer. Each call is one request; `unended` one for each 1,000 keys."""

    def __init__(self, table: Table) -> None:
        self.table = table

    @property
    def sleep(self) -> Sleep:
        """How to wait beside the table."""
        return sleep_beside(self.table)

    async def get(self, key: DeliveryKey) -> Key | None:
        """Read a key."""
        row = await self.table.get(PARTITION + key.customer, row_key(key.message))
        return None if row is None else read_key(row)

    async def put(self, key: DeliveryKey, new: Key, over: Key | None = None) -> Key | None:
        """Store a key if there is none, or over the one that was read; None when another is there."""
        name, properties = row_key(key.message), _properties(new)
        change = Operation.insert(name, properties)
        if over is not None:
            change = Operation.replace(name, properties, over.etag)
        try:
            (etag,) = await self.table.transact(PARTITION + key.customer, [change])
        except RowError:
            # The key that is there may be this delivery's own, from a call that was not answered.
            await self.table.barrier()
            return None
        await self.table.barrier()
        return new._replace(etag=etag)

    async def delete(self, key: DeliveryKey, found: Key) -> None:
        """Delete a key, unless it is another by now."""
        with suppress(RowError):
            deletion = Operation.delete(row_key(key.message), found.etag)
            await self.table.transact(PARTITION + key.customer, [deletion])
        await self.table.barrier()

    async def unended(self) -> AsyncIterator[tuple[str, str]]:
        """Yield customer and message of each sealed key that says no end."""
        async for page in pages(partial(self.table.scan, None, PARTITION, _PARTITIONS_END)):
            for row in page.rows:
                found = read_key(row)
                if found.state is KeyState.SEALED and found.end is None:
                    yield row.partition_key.removeprefix(PARTITION), row.row_key.removeprefix("ID-T-")

    async def forget_expired(self, customer: str, now: int) -> int:
        """Delete the keys of a customer that have expired by a time, in microseconds. Return how many.

        Costs a request for each 1,000 keys, and one for each that is deleted.
        """
        forgotten = 0
        async for page in pages(partial(self.table.query, PARTITION + customer, FIRST, LAST)):
            for row in page.rows:
                if read_key(row).expires_at <= now:
                    with suppress(RowError):
                        deletion = Operation.delete(row.row_key, row.etag)
                        await self.table.transact(row.partition_key, [deletion])
                        forgotten += 1
        return forgotten


def _properties(key: Key) -> Properties:
    values: Properties = {
        "Value": int(key.state), "Holder": key.holder, "ExpiresAt": to_datetime(key.expires_at)
    }  # fmt: skip
    said = {"End": key.end, "Why": key.why}
    return {**values, **{name: value for name, value in said.items() if value is not None}}


def read_key(row: Row) -> Key:
    """Return the key that a row holds. Raises `StoredDataError`."""
    values = row.properties
    with reading_row("The key of a delivery", row):
        return Key(
            KeyState(number(values, "Value")),
            text(values, "Holder"),
            to_microseconds(time(values, "ExpiresAt")),
            expect(values.get("End"), str, None),
            expect(values.get("Why"), str, None),
            row.etag,
        )
