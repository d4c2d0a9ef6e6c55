"""Claims: of the runners that publish the same batch, one at a time sends a slice.

A claim is a lease in the row of the slice. Whoever has lost it finds that out when it next notes how far it is, and
stops. Until then two may send the same slice: a target with transactions commits one of them, an HTTP receiver tells
them by the key, and a function is guarded by its own keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from eventstore import Int64, Operation, Table, Value
from eventstore.limits import MAX_OPERATIONS
from runtime.clock import Clock, to_datetime
from runtime.errors import LeaseLostError
from runtime.leases import Lease, LeaseRow
from runtime.publishing.publisher import Record
from runtime.publishing.records import PARTITION, Publication, SliceRecord, recording, slice_key
from runtime.retries import RetryPolicy, until_undisturbed

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
