"""Attempts with documents: register, prepare, commit; clean up after an attempt that lost.

A document cannot be written in the transaction that changes the state. So each attempt prepares its documents under
names of its own, and the transaction decides whose count. An attempt registers before it prepares anything, and the
transaction that commits it takes the registration out. So a document whose attempt is registered may be garbage, and
all others count.

That a commit was refused, or not answered, does not prove that the attempt lost. Before its documents are deleted the
attempt is given up: its registration is written, and from then on its commit is refused, however late it takes effect.

After Masternak and Pobiega, "Exactly-once intuition" (exactly-once.github.io).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from eventstore import ConcurrencyConflictError, Include, IncludeConflictError, Table
from handlers.documents import NewDocument
from runtime.batches.open_batches import BatchKey
from runtime.clock import Clock
from runtime.documents.registrations import Registration, find_registration, give_up, register, take_out
from runtime.documents.store import DocumentStore
from runtime.retries import READ_AGAIN, RetryPolicy, until_undisturbed

T = TypeVar("T")

Commit = Callable[[Sequence[Include]], Awaitable[T]]
"""Commits a version together with changes of rows in the partition of its object."""


class Drafts(NamedTuple):
    """The documents of an attempt, which stand for nothing until it is committed. `key` is its object's partition."""

    key: str
    attempt: str
    documents: Sequence[NewDocument]
    batch: BatchKey | None = None


@dataclass(frozen=True, slots=True)
class Documents:
    """Stores the documents of attempts. `new_id` draws an id for each attempt that no other has."""

    store: DocumentStore
    table: Table
    clock: Clock
    new_id: Callable[[], str]
    retries: RetryPolicy

    async def commit(self, drafts: Drafts, commit: Commit[T]) -> T:
        """Register, prepare, commit, and return what `commit` does; clean up if the attempt lost.

        Costs one request, and one for each document, beside those of `commit`. Raises what `commit` raises.
        """
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
        """Note which documents this attempt is going to prepare."""
        names = [document.reference.name for document in drafts.documents]
        registration = Registration(drafts.key, drafts.attempt, names, self.clock(), drafts.batch)
        return await register(self.table, registration)

    async def prepare(self, drafts: Drafts) -> None:
        """Store the documents, of which nobody knows yet."""
        for document in drafts.documents:
            await self.store.prepare(document.reference, document.content)

    async def commit_registered(self, registered: Registration, commit: Commit[T]) -> T:
        """Commit the version and take the registration out, if nobody has given the attempt up."""
        try:
            return await commit([registered.taken_out()])
        except IncludeConflictError as error:
            raise ConcurrencyConflictError(registered.key, str(error)) from error

    async def withdraw(self, registered: Registration, *, are_prepared: bool) -> None:
        """Give this attempt up and delete its documents, unless it was committed after all.

        A document of which it is not known whether it was stored may still come into being: then the registration
        stays, and a sweep deletes the document.
        """
        found = await find_registration(self.table, registered.key, registered.attempt)
        if found is None:
            return
        given_up = await give_up(self.table, found, self.clock())
        await delete(self.store, given_up)
        if are_prepared:
            await take_out(self.table, given_up)


async def delete(store: DocumentStore, given_up: Registration) -> None:
    """Delete the documents of an attempt that was given up."""
    for name in given_up.names:
        await store.delete(name)
