"""The lease of a table: one at a time cleans it up.

It is a row with an expiry. Its holder renews it, and whoever finds it expired may take it over. Each change is bound to
the row's ETag, so of two only one succeeds; a holder that was too slow finds that out when it renews, and its workers,
which look at the row, before they go on. Two at once would not damage anything: streams are guarded by ETags of their
own. They would do the same work twice.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from eventstore import (
    Operation,
    Row,
    RowChangedError,
    RowError,
    RowExistsError,
    RowNotFoundError,
    Table,
    Value,
)
from runtime.clock import Clock, shown_time, to_datetime, to_microseconds
from runtime.errors import LeaseHeldError, LeaseLostError
from runtime.storage.damage import reading_row
from runtime.storage.properties import text, time

PARTITION = "_lease"
ROW_KEY = "cleanup"
SECOND = 1_000_000
LENGTH = 60 * SECOND
"""For how long a lease is taken, in microseconds."""

RENEW_SECONDS = 15
"""After how many seconds its holder renews it, and its workers look at it again."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as it was read or written. `token` is drawn when it is taken; times in microseconds since 1970 UTC."""

    holder: str
    token: str
    taken_at: int
    expires_at: int
    etag: str

    def __str__(self) -> str:
        return f"{self.holder} until {shown_time(self.expires_at)}"


class Leases:
    """The lease of one table, and what is done with it."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    async def find(self) -> Lease | None:
        """Return the lease that is held now, None when there is none or it has expired. One request."""
        lease = await self._read()
        return lease if lease is not None and lease.expires_at > self._clock() else None

    async def check_free(self) -> None:
        """Raise `LeaseHeldError` when somebody holds the lease. One request."""
        held = await self.find()
        if held is not None:
            raise _refused(held)

    async def take(self, holder: str, *, take_over: bool = False) -> Lease:
        """Take the lease, when nobody holds it or it has expired; with `take_over` from whoever holds it.

        Two requests. Raises `LeaseHeldError`, also when somebody else was faster.
        """
        found, now = await self._read(), self._clock()
        if found is not None and found.expires_at > now and not take_over:
            raise _refused(found)
        lease = Lease(holder, uuid.uuid4().hex, now, now + LENGTH, "")
        if found is None:
            operation = Operation.insert(ROW_KEY, _properties(lease))
        else:
            operation = Operation.replace(ROW_KEY, _properties(lease), found.etag)
        try:
            (etag,) = await self._table.transact(PARTITION, [operation])
        except (RowChangedError, RowExistsError, RowNotFoundError) as error:
            other = await self._read()
            if other is not None and other.token == lease.token:
                return other
            raise LeaseHeldError(
                "Somebody else has just begun to clean this table up: try again later."
            ) from error
        return replace(lease, etag=etag)

    async def renew(self, lease: Lease) -> Lease:
        """Hold the lease for longer. One request. Raises `LeaseLostError` when somebody else has taken it over."""
        wanted = replace(lease, expires_at=self._clock() + LENGTH)
        try:
            (etag,) = await self._table.transact(
                PARTITION, [Operation.replace(ROW_KEY, _properties(wanted), lease.etag)]
            )
        except RowError:
            # The answer to the renewal before this one may have been lost.
            found = await self._read()
            if found is None or found.token != lease.token:
                raise _lost(found) from None
            return found
        return replace(wanted, etag=etag)

    async def release(self, lease: Lease) -> None:
        """Give the lease back, unless somebody else has taken it over. One request, two more after a lost answer."""
        try:
            await self._table.transact(PARTITION, [Operation.delete(ROW_KEY, lease.etag)])
        except RowError:
            found = await self._read()
            if found is not None and found.token == lease.token:
                await self._table.transact(PARTITION, [Operation.delete(ROW_KEY, found.etag)])

    async def check(self, token: str) -> None:
        """Raise `LeaseLostError` when the lease is not the one with this token, or has expired. One request."""
        found = await self._read()
        if found is None or found.token != token or found.expires_at <= self._clock():
            raise _lost(found if found is not None and found.token != token else None)

    async def _read(self) -> Lease | None:
        row = await self._table.get(PARTITION, ROW_KEY)
        return None if row is None else read_lease(row)


def _refused(held: Lease) -> LeaseHeldError:
    return LeaseHeldError(
        f"This table is being cleaned up by {held}, unless that is renewed: wait, or if it is certain that it no "
        f"longer runs, add --take-over."
    )


def _lost(other: Lease | None) -> LeaseLostError:
    why = "its lease has expired" if other is None else f"its lease was taken over by {other}"
    return LeaseLostError(
        f"This clean-up has stopped before its next streams, as {why}. What was cut is cut, and all streams can be "
        f"read: run it again to finish."
    )


def _properties(lease: Lease) -> dict[str, Value]:
    return {
        "Holder": lease.holder,
        "Token": lease.token,
        "TakenAt": to_datetime(lease.taken_at),
        "ExpiresAt": to_datetime(lease.expires_at),
    }


def read_lease(row: Row) -> Lease:
    """Return the lease that a row holds. Raises `StoredDataError`."""
    values = row.properties
    with reading_row("The lease of the table", row):
        times = [to_microseconds(time(values, name)) for name in ("TakenAt", "ExpiresAt")]
        return Lease(text(values, "Holder"), text(values, "Token"), times[0], times[1], row.etag)
