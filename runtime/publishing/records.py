"""What the table of a batch knows of its publications: which slices are sent, and who is sending the others.

All rows are in one partition. A publication is one batch, sent to one target; it keeps the number of its slices. Each
slice that was begun has a row: its lease, how many of its outputs are noted as sent, and whether all are. What became
of an output that a target refused, or that was given to a function, has a row of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from eventstore import Int64, Operation, Row, RowError, RowExistsError, RowNotFoundError, Table, Value, pages
from eventstore.limits import MAX_OPERATIONS
from runtime.clock import Clock, to_datetime, to_microseconds
from runtime.errors import LeaseLostError, UsageError
from runtime.leases import Lease, LeaseRow, read_lease
from runtime.ledger.ledger import BatchRecord, Ledger
from runtime.publishing.publisher import Record, Result, Target
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions.properties import expect, number, reading_row, text, time

PARTITION = "_publishing"
PUBLICATION, SLICE, RECORD = "p:", "s:", "r:"
LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Publication:
    """A batch that is published to a target. `key` names its rows, and its markers in the target."""

    key: str
    target: str
    slices: int
    started_at: datetime

    @property
    def marker(self) -> str:
        """What its slices are called in the target. Cut otherwise, they are other slices."""
        return f"{self.key}-{self.slices}"

    @property
    def batch_id(self) -> str:
        """The batch that is published."""
        return self.key.rpartition("-")[0]

    def check_slices(self, asked: int | None) -> None:
        """Raise `UsageError` when it was begun with another number of slices than is asked for."""
        if asked not in (None, self.slices):
            message = (
                f"This publication was begun with {self.slices} slices, and goes on with as many: leave out --slices, "
                f"or write --slices {self.slices}."
            )
            raise UsageError(message)


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """A slice that was begun: the lease of its runner, and what that has noted in the same row."""

    lease: Lease
    first_at: int
    """When it was first begun, in microseconds since 1970 UTC."""
    position: int = 0
    """How many of its outputs are noted as sent."""
    is_sent: bool = False


class Kept(NamedTuple):
    """What is recorded of an output, as it is kept."""

    record: Record
    etag: str


def key_of(record: BatchRecord, target: Target, types: Collection[str]) -> str:
    """Return the key of a publication: the same for the same batch, target, and types that are published."""
    described = json.dumps([record.token, target.identity, sorted(types)])
    return f"{record.batch_id}-{sha256(described.encode()).hexdigest()[:12]}"


class Publications:
    """The publications of one table."""

    def __init__(self, table: Table, clock: Clock, retries: RetryPolicy | None = None) -> None:
        self._table = table
        self._clock = clock
        self._retries = (retries or RetryPolicy()).beside(table)

    async def find(self, key: str) -> Publication | None:
        """Return the publication of a key, None when it was not begun. One request."""
        row = await self._table.get(PARTITION, publication_key(key))
        return None if row is None else read_publication(row)

    async def every(self) -> AsyncIterator[Publication]:
        """Give all publications. A request for each 1,000."""
        async for row in self._rows(PUBLICATION):
            yield read_publication(row)

    async def begin(self, key: str, target: str, slices: int | None, default_slices: int) -> Publication:
        """Begin a publication, or return the one that was begun. One or two requests.

        Raises `UsageError` when it was begun with another number of slices than is asked for.
        """
        found = await until_undisturbed(
            self._retries, partial(self._begin, key, target, slices or default_slices)
        )
        found.check_slices(slices)
        return found

    async def _begin(self, key: str, target: str, slices: int) -> Publication:
        found = await self.find(key)
        if found is not None:
            return found
        asked = Publication(key, target, slices, to_datetime(self._clock()))
        properties: dict[str, Value] = {"Target": target, "Slices": slices, "StartedAt": asked.started_at}
        try:
            await self._table.transact(PARTITION, [Operation.insert(publication_key(key), properties)])
        except RowExistsError:
            return await self._begin(key, target, slices)
        return asked

    async def slices(self, publication: Publication) -> dict[int, SliceRecord]:
        """Return the slices that were begun, by number. A request for each 1,000."""
        prefix = slice_prefix(publication.key)
        return {number_of_slice(row): read_slice(row) async for row in self._rows(prefix)}

    async def records(self, publication: Publication) -> list[Record]:
        """Return what is recorded of outputs. A request for each 1,000."""
        return [each.record for each in await self.kept(publication)]

    async def kept(self, publication: Publication) -> list[Kept]:
        """Return what is recorded of outputs, as it is kept. A request for each 1,000."""
        return [read_record(row) async for row in self._rows(record_prefix(publication.key))]

    async def change(self, publication: Publication, kept: Kept, record: Record) -> Kept | None:
        """Keep another record; None when somebody else has changed it since it was read. One request."""
        change = Operation.replace(_record_key(publication, record), _properties(record), kept.etag)
        try:
            (etag,) = await self._table.transact(PARTITION, [change])
        except RowError:
            return None
        return Kept(record, etag)

    async def drop(self, publication: Publication, record: Record) -> None:
        """Delete the record of a dead letter, which is sent now, unless somebody else has. One request."""
        with suppress(RowNotFoundError):
            await self._table.transact(PARTITION, [Operation.delete(_record_key(publication, record))])

    async def _rows(self, prefix: str) -> AsyncIterator[Row]:
        async for page in pages(partial(self._table.query, PARTITION, prefix, prefix + LAST)):
            for row in page.rows:
                yield row


def publication_key(key: str) -> str:
    """Return the row key of a publication."""
    return f"{PUBLICATION}{key}"


def slice_prefix(key: str) -> str:
    """Return what the row keys of the slices of a publication begin with."""
    return f"{SLICE}{key}:"


def slice_key(publication: Publication, number_: int) -> str:
    """Return the row key of a slice."""
    return f"{slice_prefix(publication.key)}{number_:06}"


def number_of_slice(row: Row) -> int:
    """Return the number in the key of the row of a slice. Raises `StoredDataError`."""
    with reading_row("The key of a slice", row):
        return int(row.row_key.rpartition(":")[2])


def record_prefix(key: str | None = None) -> str:
    """Return what the row keys of the records begin with in a publication, or in any."""
    return RECORD if key is None else f"{RECORD}{key}:"


def read_slice(row: Row) -> SliceRecord:
    """Return the slice that a row holds. Raises `StoredDataError`."""
    lease, values = read_lease(row), row.properties
    with reading_row("The slice of a publication", row):
        return SliceRecord(
            lease,
            to_microseconds(time(values, "FirstAt")),
            number(values, "Position"),
            expect(values["IsSent"], bool),
        )


def recording(publication: Publication, records: Sequence[Record]) -> list[Operation]:
    """Return what keeps records. Repeated, it changes nothing."""
    return [
        Operation.insert_or_replace(_record_key(publication, each), _properties(each)) for each in records
    ]


def _record_key(publication: Publication, record: Record) -> str:
    return f"{record_prefix(publication.key)}{record.message_id}"


def _properties(record: Record) -> dict[str, Value]:
    return {
        "Type": record.type,
        "BusinessId": record.business_id,
        "Handler": record.handler,
        "Result": record.result.value,
        "Why": record.why[:1000],
        "Customer": record.customer,
    }


def read_publication(row: Row) -> Publication:
    """Return the publication that a row holds. Raises `StoredDataError`."""
    values = row.properties
    with reading_row("A publication", row):
        target, started_at = text(values, "Target"), time(values, "StartedAt")
        return Publication(
            row.row_key.removeprefix(PUBLICATION), target, number(values, "Slices"), started_at
        )


def read_record(row: Row) -> Kept:
    """Return what is recorded of an output, as a row holds it. Raises `StoredDataError`."""
    with reading_row("The record of an output", row):
        said = {
            name: text(row.properties, name) for name in ("Type", "BusinessId", "Handler", "Why", "Customer")
        }
        result = Result(text(row.properties, "Result"))
        message_id = row.row_key.split(":", 2)[2]
        record = Record(
            message_id,
            said["Type"],
            said["BusinessId"],
            said["Handler"],
            result,
            said["Why"],
            said["Customer"],
        )
        return Kept(record, row.etag)


# Claims: of the runners that publish the same batch, one at a time sends a slice.
#
# A claim is a lease in the row of the slice. Whoever has lost it finds that out when it next notes how far
# it is, and stops. Until then two may send the same slice: a target with transactions commits one of them,
# an HTTP receiver tells them by the key, and a function is guarded by its own keys.

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Claims:
    """Claims slices of a publication for one runner, the `holder`, for `length` at a time."""

    table: Table
    clock: Clock
    publication: Publication
    holder: str
    length: timedelta

    def is_free(self, record: SliceRecord | None) -> bool:
        """Return whether nobody sends a slice, as far as its row knows."""
        return record is None or record.lease.expires_at <= self.clock()

    async def take(self, number: int, found: SliceRecord | None) -> Claim | None:
        """Claim a slice whose row was found so; None when somebody else was faster. One request, two then."""
        length = self.length // _MICROSECOND
        row = LeaseRow(self.table, self.clock, PARTITION, slice_key(self.publication, number), length)
        first_at, position = (self.clock(), 0) if found is None else (found.first_at, found.position)
        noted: dict[str, Value] = {
            "FirstAt": to_datetime(first_at),
            "Position": Int64(position),
            "IsSent": False,
        }
        lease = await row.take(self.holder, None if found is None else found.lease, noted)
        return None if lease is None else Claim(self, row, number, lease, position)


class Claim:
    """A slice that this runner sends: nobody else does while the claim is renewed."""

    def __init__(self, claims: Claims, row: LeaseRow, number: int, lease: Lease, position: int) -> None:
        self.number = number
        self.position = position
        self._claims = claims
        self._row = row
        self._lease = lease
        self._retries = RetryPolicy().beside(claims.table)
        self._lock = asyncio.Lock()

    async def renew(self) -> None:
        """Hold the slice for longer. One request. Raises `LeaseLostError` when somebody else has claimed it."""
        await self._change({})

    async def note(self, position: int, records: Sequence[Record] = ()) -> None:
        """Note how many outputs are sent, and records of some. A request for each 99 of these, otherwise as `renew`."""
        also = recording(self._claims.publication, records)
        while len(also) >= MAX_OPERATIONS:
            await self._change({}, also[: MAX_OPERATIONS - 1])
            also = also[MAX_OPERATIONS - 1 :]
        await self._change({"Position": Int64(position)}, also)
        self.position = position

    async def finish(self, position: int) -> None:
        """Note that the slice is sent. As `renew`."""
        await self._change({"Position": Int64(position), "IsSent": True})

    async def release(self) -> None:
        """Leave the slice to others, unless one has claimed it. One request."""
        with suppress(LeaseLostError):
            await self._change({}, expires_at=0)

    async def _change(
        self, values: dict[str, Value], also: Sequence[Operation] = (), expires_at: int | None = None
    ) -> None:
        async with self._lock:  # the renewal goes on beside the work
            change = partial(self._row.renew, self._lease, values, also, expires_at=expires_at)
            self._lease = await until_undisturbed(self._retries, change)


# What is kept of a publication is deleted with its batch, and a record with the business object that it
# names.


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
