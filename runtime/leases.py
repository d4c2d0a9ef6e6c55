"""Leases on slices that are published, and on the clean-up of a table.

A holder keeps a lease by renewing it. Any process may take over an expired lease. Changes are conditional on the ETag
of the row, so a holder that was too slow detects the take-over at its next change.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from eventstore import Operation, Row, RowError, Table, Value
from runtime.clock import Clock, shown_time, to_datetime, to_microseconds
from runtime.errors import LeaseHeldError, LeaseLostError
from runtime.versions.properties import reading_row, text, time


@dataclass(frozen=True, slots=True)
class Lease:
    """The row of a lease. Times are in microseconds since 1970 UTC."""

    holder: str
    token: str  # random, new whenever the lease is taken
    taken_at: int
    expires_at: int
    etag: str
    values: Mapping[str, Value] = field(default_factory=dict)  # other properties of the row

    def __str__(self) -> str:
        return f"{self.holder} until {shown_time(self.expires_at)}"


@dataclass(frozen=True, slots=True, eq=False)
class LeaseRow:
    """Reads and writes the row of a lease, which lasts `length` microseconds."""

    table: Table
    clock: Clock
    partition: str
    row_key: str
    length: int

    async def read(self) -> Lease | None:
        """Return the lease, even if it has expired, or None if the row does not exist. Costs one request."""
        row = await self.table.get(self.partition, self.row_key)
        return None if row is None else read_lease(row)

    async def take(
        self, holder: str, current: Lease | None, values: Mapping[str, Value] | None = None
    ) -> Lease | None:
        """Take the lease, and return it. Return None if its row has changed since `current` was read.

        `current` is None if there was no row. `values` are further properties of the row. Costs one or two requests.
        """
        now = self.clock()
        lease = Lease(holder, uuid.uuid4().hex, now, now + self.length, "", values or {})
        operation = Operation.insert(self.row_key, _properties(lease))
        if current is not None:
            operation = Operation.replace(self.row_key, _properties(lease), current.etag)
        try:
            (etag,) = await self.table.transact(self.partition, [operation])
        except RowError:
            other = await self.read()  # may be this one, if the response was lost
            return other if other is not None and other.token == lease.token else None
        return replace(lease, etag=etag)

    async def renew(
        self,
        lease: Lease,
        values: Mapping[str, Value] | None = None,
        also: Sequence[Operation] = (),
        *,
        expires_at: int | None = None,
    ) -> Lease:
        """Renew a lease, update its values, and apply the operations `also` in the same transaction.

        `expires_at`, in microseconds since 1970 UTC, replaces the usual end. Costs one request, or three after a lost
        response. Raises `LeaseLostError` if the lease was taken over or deleted.
        """
        until = self.clock() + self.length if expires_at is None else expires_at
        wanted = replace(lease, expires_at=until, values={**lease.values, **(values or {})})
        change = Operation.replace(self.row_key, _properties(wanted), lease.etag)
        try:
            etag, *_ = await self.table.transact(self.partition, [change, *also])
        except RowError:
            # The response to this change, or to an earlier one, may have been lost.
            current = await self.read()
            if current is None or current.token != lease.token:
                why = "its lease has expired" if current is None else f"its lease was taken over by {current}"
                raise LeaseLostError(why) from None
            return await self.renew(current, values, also, expires_at=expires_at)
        return replace(wanted, etag=etag)


def read_lease(row: Row) -> Lease:
    """Parse the row of a lease. Raises `StoredDataError` if the row is corrupt."""
    values = dict(row.properties)
    with reading_row("A lease", row):
        taken_at, expires_at = (to_microseconds(time(values, name)) for name in ("TakenAt", "ExpiresAt"))
        others = {name: each for name, each in values.items() if name not in _OWN}
        return Lease(text(values, "Holder"), text(values, "Token"), taken_at, expires_at, row.etag, others)


_OWN = frozenset({"Holder", "Token", "TakenAt", "ExpiresAt"})


def _properties(lease: Lease) -> dict[str, Value]:
    return {
        **lease.values,
        "Holder": lease.holder,
        "Token": lease.token,
        "TakenAt": to_datetime(lease.taken_at),
        "ExpiresAt": to_datetime(lease.expires_at),
    }


PARTITION = "_lease"
ROW_KEY = "cleanup"
SECOND = 1_000_000
LENGTH = 60 * SECOND  # in microseconds
RENEW_SECONDS = 15  # between renewals by the holder, and between checks by its workers


class CleanUpLease:
    """The lease of a table's clean-up. It prevents duplicate work; the streams themselves are protected by ETags."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._row = LeaseRow(table, clock, PARTITION, ROW_KEY, LENGTH)
        self._clock = clock

    async def find(self) -> Lease | None:
        """Return the lease if it has not expired, otherwise None. Costs one request."""
        lease = await self._row.read()
        return lease if lease is not None and lease.expires_at > self._clock() else None

    async def check_free(self) -> None:
        """Raise `LeaseHeldError` if the lease is held. Costs one request."""
        held = await self.find()
        if held is not None:
            raise _refused(held)

    async def take(self, holder: str, *, take_over: bool = False) -> Lease:
        """Take the lease. Raises `LeaseHeldError` if it is active, unless `take_over` is set. Costs two requests."""
        current = await self._row.read()
        if current is not None and current.expires_at > self._clock() and not take_over:
            raise _refused(current)
        lease = await self._row.take(holder, current)
        if lease is None:
            raise LeaseHeldError("Another clean-up of this table has just started. Try again later.")
        return lease

    async def renew(self, lease: Lease) -> Lease:
        """Renew the lease. Costs one request. Raises `LeaseLostError` if the lease was taken over or deleted."""
        try:
            return await self._row.renew(lease)
        except LeaseLostError as error:
            raise _lost(str(error)) from None

    async def release(self, lease: Lease) -> None:
        """Delete the lease, unless another holder has it. Costs one request, or three after a lost response."""
        try:
            await self._row.table.transact(PARTITION, [Operation.delete(ROW_KEY, lease.etag)])
        except RowError:
            current = await self._row.read()
            if current is not None and current.token == lease.token:
                await self._row.table.transact(PARTITION, [Operation.delete(ROW_KEY, current.etag)])

    async def check(self, token: str) -> None:
        """Raise `LeaseLostError` if the lease has expired, or was taken again with another token. Costs one request."""
        current = await self._row.read()
        if current is not None and current.token != token:
            raise _lost(f"its lease was taken over by {current}")
        if current is None or current.expires_at <= self._clock():
            raise _lost("its lease has expired")


def _refused(held: Lease) -> LeaseHeldError:
    return LeaseHeldError(
        f"This table is being cleaned up by {held}, or longer if it renews its lease. Wait, or add --take-over if you "
        f"are certain that it no longer runs."
    )


def _lost(why: str) -> LeaseLostError:
    return LeaseLostError(
        f"This clean-up has stopped, as {why}. All streams are consistent, and some are truncated already: run it "
        f"again to finish."
    )
