"""The lease of a table: one at a time cleans it up.

Its workers look at it again and again, and stop when it was taken over. Two at once would not damage anything: streams
are guarded by ETags of their own. They would do the same work twice.
"""

from __future__ import annotations

from eventstore import Table
from runtime.clock import Clock
from runtime.errors import LeaseHeldError, LeaseLostError
from runtime.leases import Lease, LeaseRow

PARTITION = "_lease"
ROW_KEY = "cleanup"
SECOND = 1_000_000
LENGTH = 60 * SECOND
"""For how long a lease is taken, in microseconds."""

RENEW_SECONDS = 15
"""After how many seconds its holder renews it, and its workers look at it again."""


class Leases:
    """The lease of one table, and what is done with it."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._row = LeaseRow(table, clock, PARTITION, ROW_KEY, LENGTH)
        self._clock = clock

    async def find(self) -> Lease | None:
        """Return the lease that is held now, None when there is none or it has expired. One request."""
        lease = await self._row.read()
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
        found = await self._row.read()
        if found is not None and found.expires_at > self._clock() and not take_over:
            raise _refused(found)
        lease = await self._row.take(holder, found)
        if lease is None:
            raise LeaseHeldError("Somebody else has just begun to clean this table up: try again later.")
        return lease

    async def renew(self, lease: Lease) -> Lease:
        """Hold the lease for longer. One request. Raises `LeaseLostError` when somebody else has taken it over."""
        try:
            return await self._row.renew(lease)
        except LeaseLostError as error:
            raise _lost(str(error)) from None

    async def release(self, lease: Lease) -> None:
        """Give the lease back, unless somebody else has taken it over. One request, two more after a lost answer."""
        await self._row.delete(lease)

    async def check(self, token: str) -> None:
        """Raise `LeaseLostError` when the lease is not the one with this token, or has expired. One request."""
        found = await self._row.read()
        if found is not None and found.token != token:
            raise _lost(f"its lease was taken over by {found}")
        if found is None or found.expires_at <= self._clock():
            raise _lost("its lease has expired")


def _refused(held: Lease) -> LeaseHeldError:
    return LeaseHeldError(
        f"This table is being cleaned up by {held}, unless that is renewed: wait, or if it is certain that it no "
        f"longer runs, add --take-over."
    )


def _lost(why: str) -> LeaseLostError:
    return LeaseLostError(
        f"This clean-up has stopped before its next streams, as {why}. What was cut is cut, and all streams can be "
        f"read: run it again to finish."
    )
