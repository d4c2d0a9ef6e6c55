"""Sweeping: deletes the documents of attempts that died before they committed.

An attempt is given up before its documents are deleted, and stays registered. A sweep that is at least a day later
deletes them again, as a request of the attempt may have taken effect meanwhile, and then forgets the attempt. An
attempt that was only slow has its commit refused, and its message is handled again: so a sweep does no harm beside
batches and consumers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from eventstore import Row, Table, pages
from runtime.batches.open_batches import OpenBatches
from runtime.clock import Clock, cut_off
from runtime.documents.attempts import delete
from runtime.documents.registrations import (
    MARKER,
    Registration,
    give_up,
    registrations_of,
    remove_marker,
    take_out,
)
from runtime.documents.store import DocumentStore
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.storage.damage import one_of_many

FORGET_AFTER = timedelta(days=1)
"""How long an attempt stays registered after it was given up: no request takes that long."""


class Swept(NamedTuple):
    """How many attempts a sweep gave up, and how many documents it deleted of them, as far as they were there."""

    attempts: int = 0
    documents: int = 0

    def plus(self, more: Swept) -> Swept:
        """Return the sum of two."""
        return Swept(self.attempts + more.attempts, self.documents + more.documents)


@dataclass(frozen=True, slots=True)
class DocumentSweep:
    """Sweeps the documents of one table. `open_batches` are those whose attempts are left alone."""

    table: Table
    store: DocumentStore
    clock: Clock
    retries: RetryPolicy
    open_batches: OpenBatches

    async def sweep(self, older_than: timedelta) -> Swept:
        """Delete what attempts have prepared that registered at least `older_than` ago and did not commit.

        Attempts of a batch that has not ended are left alone. Costs one request for each 1,000 objects for which
        documents were stored since the last sweep, two for each of them, and one for each document that is deleted.
        """
        latest, past = cut_off(self.clock, older_than), cut_off(self.clock, FORGET_AFTER)
        retries, swept = self.retries.beside(self.table), Swept()
        async for marker in self._markers():
            with one_of_many(self.table, marker.partition_key):
                attempt = partial(self.sweep_object, marker.partition_key, latest, past)
                swept = swept.plus(await until_undisturbed(retries, attempt))
        return swept

    async def sweep_object(self, key: str, latest: int, past: int) -> Swept:
        """Sweep the attempts at one object, and remove the marker when none is left.

        Those are given up that registered at a time, `latest`, or before, and those forgotten that were given up at
        another, `past`, or before. Times are in microseconds.
        """
        marker = await self.table.get(key, MARKER)
        registered = await registrations_of(self.table, key)
        swept, is_left = Swept(), False
        for registration in registered:
            if self._is_dead(registration, latest):
                await self.clean_up(registration)
                swept = swept.plus(Swept(1, len(registration.names)))
                is_left = True
            elif registration.given_up_at is not None and registration.given_up_at <= past:
                await delete(self.store, registration)
                await take_out(self.table, registration)
            else:
                is_left = True
        if marker is not None and not is_left:
            await remove_marker(self.table, key, marker.etag)
        return swept

    async def clean_up(self, registration: Registration) -> None:
        """Give an attempt up, and delete its documents."""
        await delete(self.store, await give_up(self.table, registration, self.clock()))

    def _is_dead(self, registration: Registration, latest: int) -> bool:
        if registration.given_up_at is not None or registration.registered_at > latest:
            return False
        return registration.batch is None or self.open_batches.is_finished(*registration.batch)

    async def _markers(self) -> AsyncIterator[Row]:
        async for page in pages(partial(self.table.scan, MARKER)):
            for row in page.rows:
                yield row
