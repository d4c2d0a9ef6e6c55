"""Store documents exactly once, with a version: register, prepare, commit, clean up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import NamedTuple, TypeVar

import msgpack

from eventstore import Include, Int64, Operation, Row, Table, Value, pages
from eventstore.errors import ConcurrencyConflictError, IncludeConflictError, RowError
from handlers.codec import unpack
from handlers.context import NewDocument
from runtime.clock import Clock, cut_off, to_datetime
from runtime.documents.store import DocumentStore
from runtime.ledger.batch import BatchKey, OpenBatches
from runtime.retries import READ_AGAIN, RetryPolicy, until_undisturbed
from runtime.versions import properties as stored
from runtime.versions.run import compress, decompress

# A document cannot be written in the transaction that changes the state. So each attempt first registers, in a row of
# the object's partition, then stores its documents under unique names. The transaction that commits the version deletes
# the registration, if its ETag is unchanged. Documents of registered attempts may be orphans; all others are committed.
#
# A commit that was refused or not answered may still take effect. So before its documents are deleted, the attempt is
# given up by changing its registration, which makes any later commit fail. A sweep at least a day later deletes the
# documents once more, in case a late request stored one, and then the registration. An attempt that was only slow is
# retried, so a sweep is safe while batches and consumers run.
#
# After Masternak and Pobiega, "Exactly-once intuition" (exactly-once.github.io).

MARKER = "DOCUMENTS"  # the row key of a marker in each partition that may have registrations

PREFIX = f"{MARKER}-"
LAST = f"{PREFIX}~"

_NAMES = stored.chunk_names("Names", 4)


@dataclass(frozen=True, slots=True)
class Registration:
    """An attempt at a version, with the names of its documents. Times are in microseconds since 1970 UTC."""

    key: str
    attempt: str
    names: Sequence[str]
    registered_at: int
    batch: BatchKey | None = None  # None for a single message
    given_up_at: int | None = None  # None while it may still commit
    etag: str = ""

    def taken_out(self) -> Include:
        """Return the conditional deletion of the row, to include in the commit."""
        return Include.delete(PREFIX + self.attempt, self.etag)

    def properties(self) -> dict[str, Value]:
        """Return the row's properties."""
        properties: dict[str, Value] = {"RegisteredAt": to_datetime(self.registered_at)}
        stored.split(properties, _NAMES, compress(msgpack.packb(self.names)))
        if self.batch is not None:
            properties["Batch"] = self.batch.batch_id
            if self.batch.number is not None:
                properties["BatchNumber"] = Int64(self.batch.number)
        if self.given_up_at is not None:
            properties["GivenUpAt"] = to_datetime(self.given_up_at)
        return properties


def is_registration(row_key: str) -> bool:
    """Return whether a row is a registration, or the marker of an object that has registrations."""
    return row_key == MARKER or row_key.startswith(PREFIX)


async def registrations_of(table: Table, key: str) -> list[Registration]:
    """Read all registrations of an object. Costs one request for every 1,000 registrations."""
    return [read_registration(row) async for row in stored.rows_between(table, key, PREFIX, LAST)]


async def give_up(table: Table, registration: Registration, now: int) -> Registration:
    """Prevent an attempt from committing, durably. Costs one request. Raises `ConcurrencyConflictError`."""
    given_up = replace(registration, given_up_at=now)
    change = Operation.replace(PREFIX + registration.attempt, given_up.properties(), registration.etag)
    (etag,) = await _write(table, registration.key, change)
    await table.barrier()
    return replace(given_up, etag=etag)


async def take_out(table: Table, registration: Registration) -> None:
    """Delete the row of an attempt without documents. Costs one request. Raises `ConcurrencyConflictError`."""
    await _write(table, registration.key, registration.taken_out().operation())


async def _write(table: Table, key: str, change: Operation) -> tuple[str, ...]:
    try:
        return await table.transact(key, [change])
    except RowError as error:
        raise ConcurrencyConflictError(key, str(error)) from error


def read_registration(row: Row) -> Registration:
    """Parse the row of a registration. Raises `StoredDataError`."""
    properties = row.properties
    with stored.reading_row("The registration of documents", row):
        names = unpack(decompress(stored.join(properties, _NAMES)))
        registered_at = stored.microseconds(properties, "RegisteredAt")
        batch = None
        if "Batch" in properties:
            own = stored.number(properties, "BatchNumber") if "BatchNumber" in properties else None
            batch = BatchKey(stored.text(properties, "Batch"), own)
        return Registration(
            row.partition_key,
            row.row_key.removeprefix(PREFIX),
            tuple(stored.expect_all(names, str)),
            stored.expect(registered_at, int),
            batch,
            stored.microseconds(properties, "GivenUpAt"),
            row.etag,
        )


T = TypeVar("T")

Commit = Callable[[Sequence[Include]], Awaitable[T]]
"""Commits a version, with other operations on its partition."""


class Drafts(NamedTuple):
    """The documents of an attempt that has not committed. `key` is the object's partition key."""

    key: str
    attempt: str
    documents: Sequence[NewDocument]
    batch: BatchKey | None = None


@dataclass(frozen=True, slots=True)
class Documents:
    """Stores the documents of attempts. `new_id` returns unique ids of attempts."""

    store: DocumentStore
    table: Table
    clock: Clock
    new_id: Callable[[], str]
    retries: RetryPolicy

    async def commit(self, drafts: Drafts, commit: Commit[T]) -> T:
        """Register, prepare and commit; clean up on failure. Costs `commit` plus one request and one per document."""
        registered = await self.register(drafts)
        are_prepared = False
        try:
            await self.prepare(drafts)
            are_prepared = True
            return await self.commit_registered(registered, commit)
        except READ_AGAIN:
            withdraw = partial(self.withdraw, registered, are_prepared=are_prepared)
            await until_undisturbed(self.retries.beside(self.table), withdraw)
            raise

    async def register(self, drafts: Drafts) -> Registration:
        """Register an attempt and its documents durably. Costs one request."""
        names = [document.reference.name for document in drafts.documents]
        registration = Registration(drafts.key, drafts.attempt, names, self.clock(), drafts.batch)
        row = Operation.insert(PREFIX + drafts.attempt, registration.properties())
        marker = Operation.insert_or_replace(MARKER, {})
        etag, _ = await self.table.transact(drafts.key, [row, marker])
        await self.table.barrier()
        return replace(registration, etag=etag)

    async def prepare(self, drafts: Drafts) -> None:
        """Store the documents, which no version refers to yet. Costs one request per document."""
        for document in drafts.documents:
            await self.store.prepare(document.reference, document.content)

    async def commit_registered(self, registered: Registration, commit: Commit[T]) -> T:
        """Commit the version, delete the registration. Raises `ConcurrencyConflictError` for an attempt given up."""
        try:
            return await commit([registered.taken_out()])
        except IncludeConflictError as error:
            raise ConcurrencyConflictError(registered.key, str(error)) from error

    async def withdraw(self, registered: Registration, *, are_prepared: bool) -> None:
        """Give this attempt up and delete its documents, unless the attempt has committed."""
        row = await self.table.get(registered.key, PREFIX + registered.attempt)
        if row is None:
            return
        given_up = await give_up(self.table, read_registration(row), self.clock())
        await delete(self.store, given_up)
        if are_prepared:  # or else a late request may store a document, which is left to a sweep
            await take_out(self.table, given_up)


async def delete(store: DocumentStore, given_up: Registration) -> int:
    """Delete the documents of an attempt that was given up, and return how many are known to have existed."""
    return sum([bool(await store.delete(name)) for name in given_up.names])


FORGET_AFTER = timedelta(days=1)
"""How long an attempt stays registered after it was given up, longer than any request takes."""


class Swept(NamedTuple):
    """The numbers of attempts given up, of documents deleted, and of attempts skipped for each reason."""

    attempts: int = 0
    documents: int = 0
    young: int = 0  # skipped: a message that may still be handled
    open: int = 0  # skipped: of an open batch
    given_up: int = 0  # skipped: a late request may still take effect


@dataclass(frozen=True, slots=True)
class DocumentSweep:
    """Deletes orphaned documents of one table, except those of `open_batches`. `only_look` makes it a dry run."""

    table: Table
    store: DocumentStore
    clock: Clock
    retries: RetryPolicy
    open_batches: OpenBatches
    only_look: bool = False

    async def sweep(self, older_than: timedelta) -> Swept:
        """Delete documents of attempts that never committed: of ended batches, and of messages at least this old.

        Costs one request for every 1,000 objects with new documents, two per object, and one per deleted document.
        """
        latest, past = cut_off(self.clock, older_than), cut_off(self.clock, FORGET_AFTER)
        retries, done, left = self.retries.beside(self.table), Counter[str](), Counter[str]()
        async for page in pages(partial(self.table.scan, MARKER)):
            for marker in page.rows:
                with stored.one_of_many(self.table, marker.partition_key):
                    attempt = partial(self.sweep_object, marker.partition_key, latest, past, done)
                    left += await until_undisturbed(retries, attempt)
        return Swept(**done, **left)

    async def sweep_object(self, key: str, latest: int, past: int, done: Counter[str]) -> Counter[str]:
        """Sweep one object, delete its marker if no attempt is left, and return the numbers of skipped attempts.

        Gives up attempts registered up to `latest`, and deletes those given up until `past`. `done` accumulates across
        retries.
        """
        marker = await self.table.get(key, MARKER)
        left, is_left = Counter[str](), False
        for registration in await registrations_of(self.table, key):
            if self._is_dead(registration, latest):
                done["documents"] += await self.clean_up(registration)
                done["attempts"] += 1
                is_left = True
            elif registration.given_up_at is not None and registration.given_up_at <= past:
                if self.only_look:
                    done["documents"] += len(registration.names)
                    continue
                done["documents"] += await delete(self.store, registration)
                await take_out(self.table, registration)
            else:
                is_open = registration.batch is not None and registration.batch.number is not None
                why = "open" if is_open else "young"
                left[why if registration.given_up_at is None else "given_up"] += 1
        if marker is not None and not is_left and not left and not self.only_look:
            # Conditional: an attempt may have registered since the read.
            await _write(self.table, key, Operation.delete(MARKER, marker.etag))
        return left

    async def clean_up(self, registration: Registration) -> int:
        """Give an attempt up, delete its documents, and return how many documents existed."""
        if self.only_look:
            return len(registration.names)
        return await delete(self.store, await give_up(self.table, registration, self.clock()))

    def _is_dead(self, registration: Registration, latest: int) -> bool:
        if registration.given_up_at is not None:
            return False
        if registration.batch is None or registration.batch.number is None:
            return registration.registered_at <= latest
        return self.open_batches.is_finished(*registration.batch)
