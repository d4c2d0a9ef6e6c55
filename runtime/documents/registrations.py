"""Registrations: which attempts are going to prepare documents for a version of an object, or have.

Each has a row in the object's partition. The transaction that commits the version deletes it, on the condition that
nobody has written it since. So a row says that its documents may be garbage, and whoever writes the row keeps its
attempt from committing, for ever. A marker beside the rows, under a key that can be scanned for, says that there may be
some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgpack

from eventstore import ConcurrencyConflictError, Include, Int64, Operation, Row, RowError, Table, Value, pages
from handlers.unpacking import unpack
from runtime.batches.open_batches import BatchKey
from runtime.clock import to_datetime
from runtime.storage.chunks import chunk_names, join, split
from runtime.storage.compression import compress, decompress
from runtime.storage.damage import expect, expect_all, reading_row
from runtime.storage.properties import microseconds, number, text

MARKER = "DOCUMENTS"
"""The row key of the marker."""

PREFIX = f"{MARKER}-"
LAST = f"{PREFIX}~"

_NAMES = chunk_names("Names", 4)


@dataclass(frozen=True, slots=True)
class Registration:
    """An attempt at a version of an object, by the object's partition key, and the names of its documents.

    `batch` is None for a single message. `given_up_at` is when the attempt was kept from committing, None while it may
    still commit. Times are in microseconds since 1970 UTC.
    """

    key: str
    attempt: str
    names: Sequence[str]
    registered_at: int
    batch: BatchKey | None = None
    given_up_at: int | None = None
    etag: str = ""

    def taken_out(self) -> Include:
        """Return the change that a commit makes of the row: it counts only if nobody wrote the row since."""
        return Include.delete(PREFIX + self.attempt, self.etag)

    def properties(self) -> dict[str, Value]:
        """Return the properties of the row."""
        properties: dict[str, Value] = {"RegisteredAt": to_datetime(self.registered_at)}
        split(properties, _NAMES, compress(msgpack.packb(self.names)))
        if self.batch is not None:
            properties["Batch"] = self.batch.batch_id
            if self.batch.number is not None:
                properties["BatchNumber"] = Int64(self.batch.number)
        if self.given_up_at is not None:
            properties["GivenUpAt"] = to_datetime(self.given_up_at)
        return properties


def is_registration(row_key: str) -> bool:
    """Say whether a row is a registration, or the marker."""
    return row_key == MARKER or row_key.startswith(PREFIX)


async def register(table: Table, registration: Registration) -> Registration:
    """Insert the row, durably, and the marker, and return the registration as it is stored. Costs one request."""
    row = Operation.insert(PREFIX + registration.attempt, registration.properties())
    marker = Operation.insert_or_replace(MARKER, {})
    etag, _ = await table.transact(registration.key, [row, marker])
    await table.barrier()
    return replace(registration, etag=etag)


async def find_registration(table: Table, key: str, attempt: str) -> Registration | None:
    """Read a registration, None when it was taken out. Costs one request."""
    row = await table.get(key, PREFIX + attempt)
    return None if row is None else read_registration(row)


async def registrations_of(table: Table, key: str) -> list[Registration]:
    """Read all registrations of an object. Costs a request for each 1,000."""
    found = pages(partial(table.query, key, PREFIX, LAST))
    return [read_registration(row) async for page in found for row in page.rows]


async def give_up(table: Table, registration: Registration, now: int) -> Registration:
    """Keep an attempt from committing, durably. Costs one request.

    Raises `ConcurrencyConflictError` when somebody else wrote the row, or took it out.
    """
    given_up = replace(registration, given_up_at=now)
    change = Operation.replace(PREFIX + registration.attempt, given_up.properties(), registration.etag)
    (etag,) = await _write(table, registration.key, change)
    await table.barrier()
    return replace(given_up, etag=etag)


async def take_out(table: Table, registration: Registration) -> None:
    """Delete the row of an attempt of which nothing is left. Raises `ConcurrencyConflictError`. Costs one request."""
    await _write(table, registration.key, registration.taken_out().operation())


async def remove_marker(table: Table, key: str, etag: str) -> None:
    """Delete the marker, on the condition that nobody has registered since it was read. Costs one request."""
    await _write(table, key, Operation.delete(MARKER, etag))


async def _write(table: Table, key: str, change: Operation) -> tuple[str, ...]:
    try:
        return await table.transact(key, [change])
    except RowError as error:
        raise ConcurrencyConflictError(key, str(error)) from error


def read_registration(row: Row) -> Registration:
    """Return the registration that a row holds. Raises `StoredDataError`."""
    properties = row.properties
    with reading_row("The registration of documents", row):
        names = unpack(decompress(join(properties, _NAMES)))
        registered_at = microseconds(properties, "RegisteredAt")
        batch = None
        if "Batch" in properties:
            own = number(properties, "BatchNumber") if "BatchNumber" in properties else None
            batch = BatchKey(text(properties, "Batch"), own)
        return Registration(
            row.partition_key,
            row.row_key.removeprefix(PREFIX),
            tuple(expect_all(names, str)),
            expect(registered_at, int),
            batch,
            microseconds(properties, "GivenUpAt"),
            row.etag,
        )
