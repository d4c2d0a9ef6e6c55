"""The rows of publications, in one partition of the batch's table.

A publication is a batch sent to a target in a fixed number of slices. A slice that was begun has a row with its lease
and position. An output that a target refused, or that was given to a function, has a record.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any

from eventstore import Int64, Operation, Row, RowError, RowExistsError, RowNotFoundError, Table, Value
from eventstore.limits import MAX_OPERATIONS
from runtime.clock import Clock, system_clock, to_datetime, to_microseconds
from runtime.errors import LeaseLostError, UsageError
from runtime.leases import Lease, LeaseRow, read_lease
from runtime.ledger.ledger import BatchRecord, Ledger
from runtime.publishing.publisher import Record, Result, Target
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions.properties import expect, number, reading_row, rows_between, text, time

PARTITION = "_publishing"
PUBLICATION, SLICE, RECORD = "p:", "s:", "r:"


@dataclass(frozen=True, slots=True)
class Publication:
    """A batch that is published to a target. `key` identifies its rows, and its markers in the target."""

    key: str
    target: str
    slices: int
    started_at: datetime

    @property
    def marker(self) -> str:
        """The prefix of the names of the slices in the target. It depends on the number of slices."""
        return f"{self.key}-{self.slices}"

    @property
    def batch_id(self) -> str:
        """The id of the published batch."""
        return self.key.rpartition("-")[0]


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """The row of a slice that was begun: its lease and progress."""

    lease: Lease
    first_at: int  # when it was first begun, in microseconds since 1970 UTC
    position: int = 0  # the number of outputs that are recorded as sent
    is_sent: bool = False


def key_of(record: BatchRecord, target: Target, types: Collection[str]) -> str:
    """Return the key of a publication, which identifies batch, target and types."""
    described = json.dumps([record.token, target.identity, sorted(types)])
    return f"{record.batch_id}-{sha256(described.encode()).hexdigest()[:12]}"


class Publications:
    """The publications of one table."""

    def __init__(self, table: Table, clock: Clock, retries: RetryPolicy | None = None) -> None:
        self.table = table
        self.clock = clock
        self._retries = (retries or RetryPolicy()).beside(table)

    async def find(self, key: str, slices: int | None = None) -> Publication | None:
        """Return a publication, or None if it was not begun. Costs one request.

        Raises `UsageError` if `slices` is given, and is not the number of slices of the publication.
        """
        row = await self.table.get(PARTITION, f"{PUBLICATION}{key}")
        publication = None if row is None else read_publication(row)
        if publication is not None and slices not in (None, publication.slices):
            raise UsageError(
                f"This publication was begun with {publication.slices} slices, which cannot change. Omit --slices, or "
                f"use --slices {publication.slices}."
            )
        return publication

    async def begin(self, key: str, target: str, slices: int | None, default_slices: int) -> Publication:
        """Return the existing publication, or begin one in `slices` slices, by default `default_slices`.

        Costs one or two requests. Raises like `find`.
        """

        async def attempt() -> Publication:
            existing = await self.find(key, slices)
            if existing is not None:
                return existing
            asked = Publication(key, target, slices or default_slices, to_datetime(self.clock()))
            row: dict[str, Value] = {"Target": target, "Slices": asked.slices, "StartedAt": asked.started_at}
            try:
                await self.table.transact(PARTITION, [Operation.insert(f"{PUBLICATION}{key}", row)])
            except RowExistsError:
                return await attempt()
            return asked

        return await until_undisturbed(self._retries, attempt)

    async def slices(self, publication: Publication) -> dict[int, SliceRecord]:
        """Return the slices that were begun, by number. Costs one request for every 1,000 slices."""
        rows = rows_of(self.table, f"{SLICE}{publication.key}:")
        return {number_of_slice(row): read_slice(row) async for row in rows}

    async def is_complete(self, key: str) -> bool:
        """Return whether all slices of a publication are sent. Costs one request, plus one for every 1,000 slices."""
        found = await self.find(key)
        slices = {} if found is None else await self.slices(found)
        return found is not None and sum(each.is_sent for each in slices.values()) == found.slices

    async def records(self, publication: Publication) -> dict[Record, str]:
        """Return the records of outputs with their ETags. Costs one request for every 1,000 records."""
        rows = rows_of(self.table, f"{RECORD}{publication.key}:")
        return {read_record(row): row.etag async for row in rows}

    async def drop_records(self, publication: Publication, message_ids: Collection[str]) -> None:
        """Delete the records of outputs. Costs one request for every 1,000 records, and one for each 100 deleted."""
        records = await self.records(publication)
        keys = [_record_key(publication, each) for each in records if each.message_id in message_ids]
        await _delete(self.table, [Operation.delete(key) for key in keys])

    async def change(self, publication: Publication, record: Record, etag: str) -> str | None:
        """Replace a record and return its new ETag, or None if the stored ETag is not `etag`. Costs one request."""
        change = Operation.replace(_record_key(publication, record), _properties(record), etag)
        try:
            return (await self.table.transact(PARTITION, [change]))[0]
        except RowError:
            return None

    async def drop(self, publication: Publication, record: Record) -> None:
        """Delete the record of an output, if it exists. Costs one request."""
        with suppress(RowNotFoundError):
            await self.table.transact(PARTITION, [Operation.delete(_record_key(publication, record))])

    async def claim(
        self, publication: Publication, number: int, found: SliceRecord | None, holder: str, length: timedelta
    ) -> SliceClaim | None:
        """Claim a slice for the time `length`. Return the claim, or None if the slice's row has changed.

        `found` is the row as last read, or None if the slice had no row. Costs one or two requests.
        """
        row_key = f"{SLICE}{publication.key}:{number:06}"
        row = LeaseRow(self.table, self.clock, PARTITION, row_key, length // timedelta(microseconds=1))
        first_at, position = (self.clock(), 0) if found is None else (found.first_at, found.position)
        noted: dict[str, Value] = {
            "FirstAt": to_datetime(first_at),
            "Position": Int64(position),
            "IsSent": False,
        }
        lease = await row.take(holder, None if found is None else found.lease, noted)
        return None if lease is None else SliceClaim(number, position, publication, row, lease, self._retries)


@dataclass
class SliceClaim:
    """A slice that this runner may send while it renews the lease.

    A runner that lost the lease detects the loss at its next write. Until then, two runners may send the slice.
    """

    number: int
    position: int
    publication: Publication
    row: LeaseRow
    lease: Lease
    retries: RetryPolicy
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def renew(self) -> None:
        """Renew the lease. Costs one request. Raises `LeaseLostError` if another runner has claimed the slice."""
        await self._change({})

    async def note(self, position: int, records: Sequence[Record] = ()) -> None:
        """Save records and the number of sent outputs, `position`, and renew the lease. Raises like `renew`.

        Costs one request, and one more for every 99 records.
        """
        keys = (_record_key(self.publication, each) for each in records)
        also = list(map(Operation.insert_or_replace, keys, map(_properties, records)))
        while len(also) >= MAX_OPERATIONS:
            await self._change({}, also[: MAX_OPERATIONS - 1])
            also = also[MAX_OPERATIONS - 1 :]
        await self._change({"Position": Int64(position)}, also)
        self.position = position

    async def finish(self, position: int) -> None:
        """Mark the slice, with `position` outputs, as sent. Costs one request. Raises `LeaseLostError` like `renew`."""
        await self._change({"Position": Int64(position), "IsSent": True})

    async def release(self) -> None:
        """End the lease, unless another runner has claimed the slice. Costs one request."""
        with suppress(LeaseLostError):
            await self._change({}, expires_at=0)

    async def _change(
        self, values: dict[str, Value], also: Sequence[Operation] = (), expires_at: int | None = None
    ) -> None:
        async with self._lock:  # renewals are concurrent with the sending
            change = partial(self.row.renew, self.lease, values, also, expires_at=expires_at)
            self.lease = await until_undisturbed(self.retries, change)


def rows_of(table: Table, prefix: str, select: Sequence[str] | None = None) -> AsyncIterator[Row]:
    """Yield the rows of publications whose row keys begin with `prefix`. Costs one request for every 1,000 rows.

    `select` names the properties to read, None for all.
    """
    return rows_between(table, PARTITION, prefix, prefix + "\U0010ffff", select)


def number_of_slice(row: Row) -> int:
    """Parse the slice number in the row key of a slice. Raises `StoredDataError` if the key is corrupt."""
    with reading_row("The key of a slice", row):
        return int(row.row_key.rpartition(":")[2])


def read_publication(row: Row) -> Publication:
    """Parse the row of a publication. Raises `StoredDataError` if the row is corrupt."""
    values = row.properties
    with reading_row("A publication", row):
        key, target = row.row_key.removeprefix(PUBLICATION), text(values, "Target")
        return Publication(key, target, number(values, "Slices"), time(values, "StartedAt"))


def read_slice(row: Row) -> SliceRecord:
    """Parse the row of a slice. Raises `StoredDataError` if the row is corrupt."""
    lease, values = read_lease(row), row.properties
    with reading_row("The slice of a publication", row):
        first_at, is_sent = to_microseconds(time(values, "FirstAt")), expect(values["IsSent"], bool)
        return SliceRecord(lease, first_at, number(values, "Position"), is_sent)


def read_record(row: Row) -> Record:
    """Parse the row of a record. Raises `StoredDataError` if the row is corrupt."""
    with reading_row("The record of an output", row):
        values: list[Any] = [text(row.properties, name) for name in _OF_RECORD]
        record = Record(row.row_key.split(":", 2)[2], *values)
        return record._replace(result=Result(record.result))


_OF_RECORD = ("Type", "BusinessId", "Handler", "Result", "Why", "Customer")


def _record_key(publication: Publication, record: Record) -> str:
    return f"{RECORD}{publication.key}:{record.message_id}"


def _properties(record: Record) -> dict[str, Value]:
    return dict(zip(_OF_RECORD, map(str, record._replace(why=record.why[:1000])[1:]), strict=True))


async def publications_of(table: Table, batch_ids: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the publications of each batch, by batch id, as dicts with `target`, `slices` and `slices_sent`.

    Costs one request for every 1,000 publications in the table, and one for each publication of the batches.
    """
    found: dict[str, list[dict[str, Any]]] = {batch_id: [] for batch_id in batch_ids}
    async for row in rows_of(table, PUBLICATION):
        each = read_publication(row)
        if each.batch_id in found:
            slices = await Publications(table, system_clock).slices(each)
            sent = sum(one.is_sent for one in slices.values())
            found[each.batch_id].append({"target": each.target, "slices": each.slices, "slices_sent": sent})
    return found


async def prune_publications(table: Table, clock: Clock) -> int:
    """Delete the publications of batches that are no longer in the ledger. Return the number of deletions.

    Keeps publications with a claimed slice. Costs one request for each publication, and four more for each publication
    that is deleted.
    """
    publications, ledger, count = Publications(table, clock), Ledger(table, clock), 0
    for each in [read_publication(row) async for row in rows_of(table, PUBLICATION)]:
        if await ledger.find(each.batch_id) is not None:
            continue
        slices = await publications.slices(each)
        if any(one.lease.expires_at > clock() and not one.is_sent for one in slices.values()):
            continue
        prefixes = [f"{kind}{each.key}:" for kind in (SLICE, RECORD)]
        keys = [row.row_key for prefix in prefixes async for row in rows_of(table, prefix, [])]
        # The publication's own row is last, so that an interrupted deletion is found and resumed.
        await _delete(table, [Operation.delete(key) for key in (*keys, f"{PUBLICATION}{each.key}")])
        count += 1
    return count


async def letters_of(table: Table, handler: str, business_id: str) -> list[Row]:
    """Return the records of a business object's outputs: dead letters and, for function targets, all outputs.

    Costs one request for every 1,000 records of the table.
    """
    letters = []
    async for row in rows_of(table, RECORD, ["BusinessId", "Handler"]):
        with reading_row("The record of an output", row):
            named = text(row.properties, "Handler"), text(row.properties, "BusinessId")
        if named == (handler, business_id):
            letters.append(row)
    return letters


async def delete_letters(table: Table, letters: Sequence[Row]) -> None:
    """Delete records, 100 per request. Raises `RowChangedError` if a record has changed since it was read."""
    await _delete(table, [Operation.delete(row.row_key, row.etag) for row in letters])


async def _delete(table: Table, deletions: Sequence[Operation]) -> None:
    for start in range(0, len(deletions), MAX_OPERATIONS):
        some = deletions[start : start + MAX_OPERATIONS]
        try:
            await table.transact(PARTITION, some)
        except RowNotFoundError:  # a row was deleted concurrently, which failed the whole transaction
            for deletion in some:
                with suppress(RowNotFoundError):
                    await table.transact(PARTITION, [deletion])
