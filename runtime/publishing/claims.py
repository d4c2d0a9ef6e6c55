"""Claims: of the runners that publish the same batch, one at a time sends a slice.

A claim is a lease in the row of the slice. Each change is bound to the row's ETag, so whoever has lost the lease finds
that out when it next notes how far it is, and stops. Until then two may send the same slice: a target with transactions
commits one of them, an HTTP receiver tells them by the key, and what is sent at most once is noted before it is sent.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from eventstore import Operation, RowChangedError, RowError, RowExistsError, RowNotFoundError, Table
from runtime.clock import Clock
from runtime.errors import LeaseLostError
from runtime.publishing.publisher import Refused
from runtime.publishing.records import (
    PARTITION,
    Publication,
    SliceRecord,
    read_slice,
    refusals,
    slice_key,
    slice_properties,
)
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
        """Say whether nobody sends a slice, as far as its row knows."""
        return record is None or record.expires_at <= self.clock()

    async def take(self, number: int, found: SliceRecord | None) -> Claim | None:
        """Claim a slice whose row was found so; None when somebody else was faster. One request."""
        now = self.clock()
        first_at, position, in_doubt = (
            (now, 0, 0) if found is None else (found.first_at, found.position, found.in_doubt)
        )
        wanted = SliceRecord(self.holder, uuid.uuid4().hex, self.expiry(), first_at, position, in_doubt)
        key, properties = slice_key(self.publication, number), slice_properties(wanted)
        if found is None:
            operation = Operation.insert(key, properties)
        else:
            operation = Operation.replace(key, properties, found.etag)
        try:
            (etag,) = await self.table.transact(PARTITION, [operation])
        except (RowChangedError, RowExistsError, RowNotFoundError):
            return None
        return Claim(self, number, replace(wanted, etag=etag))

    def expiry(self) -> int:
        """Return when a claim ends that is made now."""
        return self.clock() + self.length // _MICROSECOND


class Claim:
    """A slice that this runner sends: nobody else does while the claim is renewed."""

    def __init__(self, claims: Claims, number: int, record: SliceRecord) -> None:
        self.number = number
        self.record = record
        self._claims = claims
        self._retries = RetryPolicy().beside(claims.table)
        self._lock = asyncio.Lock()

    async def renew(self) -> None:
        """Hold the slice for longer. One request. Raises `LeaseLostError` when somebody else has claimed it."""
        await self._change()

    async def note(self, position: int, in_doubt: int = 0, refused: Sequence[Refused] = ()) -> None:
        """Note how many outputs are sent, of which some are in doubt, and those that were refused. As `renew`."""
        await self._change(refused, position=position, in_doubt=in_doubt)

    async def finish(self, position: int) -> None:
        """Note that the slice is sent. As `renew`."""
        await self._change(position=position, in_doubt=0, is_sent=True)

    async def release(self) -> None:
        """Leave the slice to others, unless one has claimed it. One request."""
        with suppress(LeaseLostError):
            await self._change(expires_at=0)

    async def _change(self, refused: Sequence[Refused] = (), **changes: Any) -> None:  # noqa: ANN401 - the fields of SliceRecord
        async with self._lock:  # the renewal goes on beside the work
            wanted = {"expires_at": self._claims.expiry(), **changes}
            self.record = await until_undisturbed(self._retries, lambda: self._write(wanted, refused))

    async def _write(self, changes: Mapping[str, Any], refused: Sequence[Refused]) -> SliceRecord:
        wanted, key = replace(self.record, **changes), slice_key(self._claims.publication, self.number)
        operations = [Operation.replace(key, slice_properties(wanted), self.record.etag)]
        operations += refusals(self._claims.publication, refused)
        try:
            etag, *_ = await self._claims.table.transact(PARTITION, operations)
        except RowError:
            row = await self._claims.table.get(PARTITION, key)
            found = None if row is None else read_slice(row)
            if found is None or found.token != wanted.token:
                raise _lost(found) from None
            self.record = found  # an answer was lost, to this change or to one that was given up
            return await self._write(changes, refused)
        return replace(wanted, etag=etag)


def _lost(other: SliceRecord | None) -> LeaseLostError:
    who = "is gone" if other is None else f"was claimed by {other.holder}"
    return LeaseLostError(f"This runner was too slow to renew its claim: the slice {who}.")
