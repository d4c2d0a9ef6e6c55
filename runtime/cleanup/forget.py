"""Forgetting a business object: all that its tables hold of it goes, and a tombstone stays in its place.

First the tombstone is put, on the condition that nobody wrote since the object was read: from then on no message
changes the object, and a worker that handled one meanwhile has its write refused and finds the tombstone. Then rows are
deleted, and last the tombstone is stripped of all that it still tells. Until then it refuses all messages, also when a
new history is to begin. A crash at any step leaves an object that refuses; forgetting it again finishes the work.

Somebody else may have finished it meanwhile, and a new history may have begun. No deletion reaches that: rows of the
object itself go in the same transaction as a touch of the tombstone, and whatever is elsewhere is read before such a
touch, and deleted only as it was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from eventstore import ConcurrencyConflictError, Operation, Row, RowError, Table
from eventstore.limits import MAX_OPERATIONS
from eventstore.port import LeavesTraces
from runtime.cleanup.business_object import BusinessObject, Tables, read_object, rows_of
from runtime.cleanup.elsewhere import Elsewhere
from runtime.cleanup.forgotten_documents import ObjectDocuments, give_up_attempts
from runtime.cleanup.policies import Scope, is_held
from runtime.cleanup.tombstones import refuse, strip, touch
from runtime.documents.registrations import registrations_of
from runtime.documents.store import ListedDocuments
from runtime.errors import UsageError
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.storage.tombstone import Tombstone


async def forget(
    tables: Tables,
    handler: str,
    business_id: str,
    now: int,
    *,
    restart: bool,
    retries: RetryPolicy,
    documents: ListedDocuments | None = None,
) -> bool:
    """Erase an object and put a tombstone in its place; say whether there was anything.

    The tombstone refuses all messages or, with `restart`, begins a new history: a message that was enqueued `now` or
    before, or at a time that is not known, is too late for it. Costs a request for each 1,000 rows and one for each
    99, and ten more; one more for each 1,000 ids in a store of their own, and two for each token. With the store of
    `documents` all those of the object are deleted, which costs one request for each and four more. Raises
    `UsageError` when a policy holds the object, and `RetriesExhaustedError` after too many lost races in a row.
    """
    scope = Scope(handler, business_id)
    stored = None if documents is None else ObjectDocuments.of(documents, handler, business_id)
    attempt = partial(_forget_once, tables, scope, now, restart=restart, documents=stored)
    return await until_undisturbed(retries.beside(*tables), attempt)


async def scrub(tables: Tables) -> None:
    """Return when no file of a store holds what was deleted. Raises `StoreUnavailableError`."""
    for table in tables.each:
        if isinstance(table, LeavesTraces):
            await table.scrub()


async def _forget_once(
    tables: Tables, scope: Scope, now: int, *, restart: bool, documents: ObjectDocuments | None
) -> bool:
    found = await read_object(tables.states, scope.handler or "", scope.business_id or "")
    if found is None:
        return False
    if await is_held(tables.states, found.key):
        raise UsageError(f"{found.key} is held by a policy: lift the hold (`consistent policy`) before.")
    try:
        refusing = await refuse(tables.states, found, now)
        refusing = await _delete_what_is_elsewhere(tables, scope, refusing, now)
        if tables.deduplication_store is not tables.states:
            refusing = await _delete_ids(tables, refusing)
        if documents is not None:
            refusing = await _delete_documents(tables.states, documents, refusing, now)
        refusing = await _delete_rows(tables.states, refusing)
        await strip(tables.states, refusing, Tombstone(now, refuses=not restart))
    except RowError as error:
        raise ConcurrencyConflictError(found.key, str(error)) from error
    await tables.states.barrier()
    return True


async def _delete_what_is_elsewhere(
    tables: Tables, scope: Scope, found: BusinessObject, now: int
) -> BusinessObject:
    """Delete what other partitions hold of an object, and return the object as it is then."""
    elsewhere = Elsewhere(tables, lambda: now)
    parts = await elsewhere.read(found, scope)
    if parts.is_empty:
        return found
    found = await touch(tables.states, found)
    await elsewhere.delete(parts)
    return found


async def _delete_ids(tables: Tables, found: BusinessObject) -> BusinessObject:
    """Delete the ids in a store of their own, and return the object as it is then.

    No transaction spans both tables. One request for each 1,000 ids, one for a touch, one for each 100 ids.
    """
    async for ids in rows_of(tables.deduplication_store, found.key):
        if ids:
            found = await touch(tables.states, found)
        for some in _parts(ids, MAX_OPERATIONS):
            deletions = [Operation.delete(row.row_key, row.etag) for row in some]
            await tables.deduplication_store.transact(found.key, deletions)
    return found


async def _delete_documents(
    table: Table, documents: ObjectDocuments, found: BusinessObject, now: int
) -> BusinessObject:
    """Delete the documents that are there, and return the object as it is then.

    A new history stores documents under other names.
    """
    attempts = await registrations_of(table, found.key)
    found = await touch(table, found)
    await give_up_attempts(table, attempts, now)
    names = await documents.names()
    found = await touch(table, found)
    await documents.delete(names)
    return found


async def _delete_rows(table: Table, found: BusinessObject) -> BusinessObject:
    """Delete all rows of an object but tombstones, and return it as it is then."""
    async for rows in rows_of(table, found.key):
        for some in _parts(rows, MAX_OPERATIONS - 1):
            found = await touch(table, found, [Operation.delete(row.row_key) for row in some])
    return found


def _parts(rows: Sequence[Row], size: int) -> list[Sequence[Row]]:
    return [rows[at : at + size] for at in range(0, len(rows), size)]
