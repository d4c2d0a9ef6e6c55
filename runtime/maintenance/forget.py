"""Erase a business object: delete its rows and documents, and leave a tombstone.

The steps: write a tombstone that rejects messages, delete rows, then reduce the tombstone to a minimum. After a crash
the object rejects messages, and forgetting it again resumes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from eventstore import ConcurrencyConflictError, Operation, Row, RowError, Stream, Table, pages
from eventstore.header import EVENT, HEADER
from eventstore.limits import MAX_OPERATIONS
from eventstore.port import LeavesTraces
from handlers.codec import unpack
from handlers.context import DOCUMENT
from runtime.algorithms.outbox.entity import ENTITY, Entity, read_entity
from runtime.algorithms.outbox.stores import Token, TokenStore
from runtime.algorithms.state_based.truncation import read_runs
from runtime.documents import ListedDocuments, give_up, is_registration, object_folder, registrations_of
from runtime.errors import StoredDataError, UsageError
from runtime.maintenance.policies import Policies, Scope, is_held
from runtime.publishing.records import delete_letters, letters_of
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions.dead_letter_rows import Waiting
from runtime.versions.head import Head, Tombstone
from runtime.versions.properties import error_location
from runtime.versions.stream import stream_partition, versions


class Tables(NamedTuple):
    """The tables that may have rows of an object."""

    states: Table
    deduplication_store: Table
    token_store: Table

    @property
    def each(self) -> list[Table]:
        """The tables, without repetitions."""
        return list({id(table): table for table in self}.values())


@dataclass(frozen=True, slots=True)
class BusinessObject:
    """A business object's stream, entity, or both."""

    key: str
    stream: Stream | None
    head: Head | None
    entity: Entity | None
    newest: int | None  # when its newest message was enqueued, if known

    @property
    def tokens(self) -> list[Token]:
        """The tokens of the object's unfinished messages, then the tokens of failed attempts."""
        known = [entry.tokens for entry in self.entity.outbox.values() if entry.tokens] if self.entity else []
        return [tokens.incoming for tokens in known] + [token for each in known for token in each.garbage()]

    @property
    def tombstone(self) -> Tombstone | None:
        """The tombstone of the stream or entity, if any."""
        holder = self.head or self.entity
        return holder.tombstone if holder else None


async def read_object(table: Table, handler: str, business_id: str) -> BusinessObject | None:
    """Read an object from the table of states. Return None if the table does not have it. Costs two requests."""
    partition = stream_partition(table, handler, business_id)
    with error_location(table, partition.key):
        found = await read_runs(partition)
        row = await table.get(partition.key, ENTITY)
        entity = None if row is None else read_entity(row)
        if found is None:
            return None if entity is None else BusinessObject(partition.key, None, None, entity, None)
        stream, head, runs = found
        newest = max([run.newest for run in runs if run.newest is not None], default=None)
        return BusinessObject(partition.key, stream, head, entity, newest)


async def rows_of(table: Table, key: str) -> AsyncIterator[Sequence[Row]]:
    """Yield an object's rows by page, except header, entity and document registrations. Costs one request per 1,000."""
    kept = {HEADER, ENTITY}
    async for page in pages(partial(table.query, key, "", "\uffff", select=[])):
        yield [row for row in page.rows if row.row_key not in kept and not is_registration(row.row_key)]


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
    """Erase an object, leave a tombstone, and return whether the object existed.

    `restart`: begin a new history. Messages enqueued up to `now`, or at an unknown time, are then too late. Otherwise
    the tombstone rejects all messages. `documents`: the store of the object's documents, if any.

    Costs ten requests, one more for every 99 rows, two per token, and one per document. Raises `UsageError` if a policy
    holds the object, and `RetriesExhaustedError` after too many conflicts.
    """
    last, is_last_tried = Tombstone(now, refuses=not restart), False

    async def attempt() -> bool:
        nonlocal is_last_tried
        found = await read_object(tables.states, handler, business_id)
        if found is None:
            return False
        if restart and is_last_tried and found.tombstone == last:
            # The answer to the last step was lost, and a new history may have begun.
            await tables.states.barrier()
            return True
        if await is_held(tables.states, found.key):
            raise UsageError(
                f"A policy holds {found.key}: lift it first (`truncate --policy remove --hold`)."
            )
        erasure = _Erasure(tables, found, now)
        try:
            await erasure.write_tombstones()
            await erasure.delete_elsewhere()
            if tables.deduplication_store is not tables.states:
                await erasure.delete_ids()
            if documents is not None:
                await erasure.delete_documents(documents, object_folder(handler, business_id))
            await erasure.delete_rows()
            is_last_tried = True
            await erasure.strip(last)
        except RowError as error:
            raise ConcurrencyConflictError(found.key, str(error)) from error
        await tables.states.barrier()
        return True

    return await until_undisturbed(retries.beside(*tables), attempt)


async def scrub(tables: Tables) -> None:
    """Erase deleted data from the files of stores. Raises `StoreUnavailableError` if another process prevents it."""
    for table in tables.each:
        if isinstance(table, LeavesTraces):
            await table.scrub()


class _Erasure:
    """The steps that erase an object. Its header, its entity or both become its tombstones.

    Writes are conditional, and raise `RowError` after a conflict. Another process may finish the erasure, and a new
    history may begin. So rows of the object are deleted in a transaction with `touch`, and rows elsewhere are read
    before a `touch` and deleted by ETag: both fail if the rows belong to the new history.
    """

    def __init__(self, tables: Tables, found: BusinessObject, now: int) -> None:
        self._tables = tables
        self._found = found
        self._now = now
        self._head = found.head
        self._stream_etag = (found.stream.etag if found.stream else None) or ""
        self._entity_etag = (found.entity.etag if found.entity else None) or ""

    async def write_tombstones(self) -> None:
        """Write tombstones that reject messages and record how to resume the erasure. Costs one request each."""
        stream, head, entity, now = self._found.stream, self._head, self._found.entity, self._now
        if stream is not None and head is not None:
            # Senders' clocks may be ahead.
            horizon = max(filter(None, (now, self._found.newest, head.horizon)))
            self._head = _bare(head, Tombstone(now), horizon)
            numbers = {"Version": stream.version, "FirstVersion": stream.version + 1}
            header = {**numbers, **self._head.properties()}
            await self._write(Operation.replace(HEADER, header, self._stream_etag))
        if entity is not None:
            refusing = replace(entity, tombstone=Tombstone(now))
            await self._write(Operation.replace(ENTITY, refusing.properties(), self._entity_etag))

    async def delete_elsewhere(self) -> None:
        """Delete the object's tokens, retention rules and publication records."""
        states, (handler, _, business_id) = self._tables.states, self._found.key.partition("-")
        token_store, policies = TokenStore(self._tables.token_store), Policies(states, lambda: self._now)
        tokens = await token_store.find(self._found.tokens)
        policy = await policies.get(Scope(handler, business_id))
        letters = await letters_of(states, handler, business_id)
        if not (tokens or policy.rules or letters):
            return
        await self.touch()
        for token in tokens:
            await token_store.delete(*token)
        if tokens:
            await token_store.flush()
        await policies.remove_rules_of(policy)
        await delete_letters(states, letters)

    async def delete_ids(self) -> None:
        """Delete the processed ids in the deduplication store: by ETag, because no transaction spans both tables."""
        store, key = self._tables.deduplication_store, self._found.key
        async for ids in rows_of(store, key):
            if ids:
                await self.touch()
            for at in range(0, len(ids), MAX_OPERATIONS):
                some = ids[at : at + MAX_OPERATIONS]
                await store.transact(key, [Operation.delete(row.row_key, row.etag) for row in some])

    async def delete_documents(self, documents: ListedDocuments, folder: str) -> None:
        """Stop attempts that store documents from committing, and delete the documents in the object's folder."""
        attempts = await registrations_of(self._tables.states, self._found.key)
        await self.touch()
        # An attempt cannot commit any longer, but may still store a document, which a sweep deletes.
        for registration in attempts:
            if registration.given_up_at is None:
                await give_up(self._tables.states, registration, self._now)
        names = await documents.names(folder)
        await self.touch()
        for name in names:
            await documents.delete(name)
        await documents.remove(folder)

    async def delete_rows(self) -> None:
        """Delete the rows of the object's partition, except for the tombstones."""
        async for rows in rows_of(self._tables.states, self._found.key):
            for at in range(0, len(rows), MAX_OPERATIONS - 1):
                some = rows[at : at + MAX_OPERATIONS - 1]
                await self.touch([Operation.delete(row.row_key) for row in some])

    async def touch(self, changes: Sequence[Operation] = ()) -> None:
        """Rewrite a tombstone, and make `changes` in the same transaction. Costs one request.

        Raises `RowError` if the tombstone has changed since it was read or written.
        """
        row_key, etag = HEADER, self._stream_etag
        if self._found.stream is None:
            row_key, etag = ENTITY, self._entity_etag
        await self._write(Operation.merge(row_key, {"Refuses": True}, etag), *changes)

    async def strip(self, tombstone: Tombstone) -> None:
        """Reduce the rows of the tombstones to the data of `tombstone`. Costs one request."""
        changes, entity = [], self._found.entity
        if self._head is not None:
            head = _bare(self._head, tombstone, self._head.horizon or tombstone.at)
            changes.append(Operation.replace(HEADER, {"Version": 0, **head.properties()}, self._stream_etag))
        if entity is not None:
            waiting = Waiting(last=entity.waiting.last)
            bare = Entity(
                self._found.key, entity.algorithm, b"", entity.schema, waiting=waiting, tombstone=tombstone
            )
            changes.append(Operation.replace(ENTITY, bare.properties(), self._entity_etag))
        await self._tables.states.transact(self._found.key, changes)

    async def _write(self, change: Operation, *others: Operation) -> None:
        etag, *_ = await self._tables.states.transact(self._found.key, [change, *others])
        if change.row_key == HEADER:
            self._stream_etag = etag
        else:
            self._entity_etag = etag


def _bare(head: Head, tombstone: Tombstone, horizon: int) -> Head:
    bare = Head(None, head.schema, last_now=tombstone.at, horizon=horizon, undated_cut=True)
    return bare._replace(waiting=Waiting(last=head.waiting.last), tombstone=tombstone)


async def referenced_documents(table: Table, handler: str, business_id: str) -> list[str]:
    """Return the names of the documents that an object's versions refer to. Costs one request for every 1,000 runs."""
    try:
        stream_versions = await versions(table, handler, business_id) or []
    except StoredDataError:  # a corrupt object can still be forgotten
        return []
    return [
        unpack(value)["name"]
        for version in stream_versions
        for name, value in (version.record.captured or {}).items()
        if name.startswith(DOCUMENT)
    ]


@dataclass(frozen=True, slots=True)
class Trace:
    """A summary of an object's stored data, for display before it is forgotten."""

    key: str
    algorithm: str | None
    versions: int
    messages: int  # entries of its outbox
    rows: dict[str, int]  # by kind
    forgotten_at: int | None = None
    held: bool = False


async def find_trace(tables: Tables, handler: str, business_id: str) -> Trace | None:
    """Summarize an object, or return None if it does not exist. Reads all its row keys, and all publication records."""
    found = await read_object(tables.states, handler, business_id)
    if found is None:
        return None
    rows: Counter[str] = Counter()
    names = {EVENT: "runs", "SS-IDX-": "index", "SS-LTR-": "letters", "ID-": "ids"}
    for table in Tables(tables.states, tables.deduplication_store, tables.states).each:
        async for some in rows_of(table, found.key):
            for row in some:
                kinds = (kind for prefix, kind in names.items() if row.row_key.startswith(prefix))
                rows[next(kinds, "others")] += 1
    rows["tokens"] = len(found.tokens)
    rows["records of publications"] = len(await letters_of(tables.states, handler, business_id))
    head, entity, tombstone = found.head, found.entity, found.tombstone
    return Trace(
        found.key,
        entity.algorithm if entity else None,
        head.versions + 1 - head.kept_from if head else 0,
        len(entity.outbox) if entity else 0,
        {kind: count for kind, count in rows.items() if count},
        tombstone.at if tombstone else None,
        await is_held(tables.states, found.key),
    )
