"""Forgetting a business object: all that its tables hold of it goes, and a tombstone stays in its place.

First the tombstone is put, on the condition that nobody wrote since the object was read: from then on no message
changes the object, and a worker that handled one meanwhile has its write refused and finds the tombstone. Then rows are
deleted, and last the tombstone is stripped of all that it still tells. Until then it refuses all messages, also when a
new history is to begin. A crash at any step leaves an object that refuses; forgetting it again finishes the work.

Somebody else may have finished it meanwhile, and a new history may have begun. No deletion reaches that: rows of the
object itself go in the same transaction as a touch of the tombstone, and whatever is elsewhere is read before such a
touch, and deleted only as it was read.

Documents are deleted once the tombstone refuses messages. An attempt that began before has its commit refused then, but
may prepare a document all the same, and die: so attempts stay registered, given up, until a sweep that is at least a
day later has deleted their documents again.
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
from runtime.documents.protocol import give_up, is_registration, registrations_of
from runtime.documents.store import ListedDocuments, object_folder
from runtime.errors import StoredDataError, UsageError
from runtime.maintenance.policies import Policies, Scope, is_held
from runtime.publishing.records import delete_letters, letters_of
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions.head import HEAD_PROPERTIES, Head, Tombstone, read_head
from runtime.versions.properties import error_location
from runtime.versions.run import INDEX_PROPERTIES, read_index
from runtime.versions.stream import stream_partition, versions


class Tables(NamedTuple):
    """The tables that may hold something of an object: of the states, of the ids of messages, of the tokens."""

    states: Table
    deduplication_store: Table
    token_store: Table

    @property
    def each(self) -> list[Table]:
        """Each table once."""
        return list({id(table): table for table in self}.values())


@dataclass(frozen=True, slots=True)
class BusinessObject:
    """An object as its table holds it: its stream, its entity, or both.

    `newest` is when its newest message was enqueued, as far as that is known.
    """

    key: str
    stream: Stream | None
    head: Head | None
    entity: Entity | None
    newest: int | None

    @property
    def tokens(self) -> list[Token]:
        """The tokens of its unfinished messages, and of attempts that lost; first those that let others be created."""
        known = [entry.tokens for entry in self.entity.outbox.values() if entry.tokens] if self.entity else []
        return [tokens.incoming for tokens in known] + [token for each in known for token in each.garbage()]

    @property
    def tombstone(self) -> Tombstone | None:
        """The tombstone that it has."""
        holder = self.head or self.entity
        return holder.tombstone if holder else None


async def read_object(table: Table, handler: str, business_id: str) -> BusinessObject | None:
    """Return what the table of the states holds of an object, None when there is nothing. Two requests."""
    partition = stream_partition(table, handler, business_id)
    with error_location(table, partition.key):
        slice_ = await Stream.try_read(
            partition, slice_size=None, select=INDEX_PROPERTIES, header=HEAD_PROPERTIES
        )
        row = await table.get(partition.key, ENTITY)
        entity = None if row is None else read_entity(row)
        if slice_ is None:
            return None if entity is None else BusinessObject(partition.key, None, None, entity, None)
        head = read_head(slice_.stream.properties or {})
        runs = [read_index(event) for event in slice_.events] + (head.tail.indexes() if head.tail else [])
        newest = max([run.newest for run in runs if run.newest is not None], default=None)
        return BusinessObject(partition.key, slice_.stream, head, entity, newest)


async def rows_of(table: Table, key: str) -> AsyncIterator[Sequence[Row]]:
    """Yield the rows of an object without properties, but for its tombstones, and attempts that a sweep has to forget.

    One request for each 1,000.
    """
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
    """Erase an object and put a tombstone in its place; return whether there was anything.

    The tombstone refuses all messages or, with `restart`, begins a new history: a message that was enqueued `now` or
    before, or at a time that is not known, is too late for it. Costs a request for each 1,000 rows and one for each
    99, and ten more; one more for each 1,000 ids in a store of their own, and two for each token. With the store of
    `documents` all those of the object are deleted, which costs one request for each and four more. Raises
    `UsageError` when a policy holds the object, and `RetriesExhaustedError` after too many lost races in a row.
    """
    scope = Scope(handler, business_id)
    attempt = partial(_forget_once, tables, scope, now, restart=restart, documents=documents)
    return await until_undisturbed(retries.beside(*tables), attempt)


async def scrub(tables: Tables) -> None:
    """Return when no file of a store holds what was deleted. Raises `StoreUnavailableError`."""
    for table in tables.each:
        if isinstance(table, LeavesTraces):
            await table.scrub()


async def _forget_once(
    tables: Tables, scope: Scope, now: int, *, restart: bool, documents: ListedDocuments | None
) -> bool:
    found = await read_object(tables.states, scope.handler or "", scope.business_id or "")
    if found is None:
        return False
    if await is_held(tables.states, found.key):
        raise UsageError(
            f"{found.key} is held by a policy: lift it (`truncate --policy remove --hold`) before."
        )
    try:
        tombstones = _Tombstones(tables.states, found)
        await tombstones.refuse(now)
        await _delete_what_is_elsewhere(tables, scope, tombstones, now)
        if tables.deduplication_store is not tables.states:
            await _delete_ids(tables.deduplication_store, found.key, tombstones)
        if documents is not None:
            await _delete_documents(tables.states, documents, scope, tombstones, now)
        async for rows in rows_of(tables.states, found.key):
            for at in range(0, len(rows), MAX_OPERATIONS - 1):
                deletions = [Operation.delete(row.row_key) for row in rows[at : at + MAX_OPERATIONS - 1]]
                await tombstones.touch(deletions)
        await tombstones.strip(Tombstone(now, refuses=not restart))
    except RowError as error:
        raise ConcurrencyConflictError(found.key, str(error)) from error
    await tables.states.barrier()
    return True


async def _delete_ids(store: Table, key: str, tombstones: _Tombstones) -> None:
    """Delete the ids in a store of their own: no transaction spans both tables.

    One request for each 1,000 ids, one for a touch, one for each 100 ids.
    """
    async for ids in rows_of(store, key):
        if ids:
            await tombstones.touch()
        for at in range(0, len(ids), MAX_OPERATIONS):
            some = [Operation.delete(row.row_key, row.etag) for row in ids[at : at + MAX_OPERATIONS]]
            await store.transact(key, some)


class _Tombstones:
    """What stands in the place of an object that is being forgotten: the header of its stream, its entity, or both.

    Each is written as it was read, or written before. Raises `RowError` when somebody else has written one since.
    """

    def __init__(self, table: Table, found: BusinessObject) -> None:
        self._table = table
        self.found = found
        self._head = found.head
        self._stream_etag = (found.stream.etag if found.stream else None) or ""
        self._entity_etag = (found.entity.etag if found.entity else None) or ""

    async def refuse(self, now: int) -> None:
        """Put tombstones that refuse, and keep in them what is needed to finish. One request for each."""
        stream, head, entity = self.found.stream, self._head, self.found.entity
        if stream is not None and head is not None:
            # A clock that is ahead may have stamped messages later than now.
            horizon = max(filter(None, (now, self.found.newest, head.horizon)))
            self._head = _bare(head, Tombstone(now), horizon)
            numbers = {"Version": stream.version, "FirstVersion": stream.version + 1}
            header = {**numbers, **self._head.properties()}
            await self._write(Operation.replace(HEADER, header, self._stream_etag))
        if entity is not None:
            refusing = replace(entity, tombstone=Tombstone(now))
            await self._write(Operation.replace(ENTITY, refusing.properties(), self._entity_etag))

    async def touch(self, changes: Sequence[Operation] = ()) -> None:
        """Write one of them with other changes. One request."""
        row_key, etag = HEADER, self._stream_etag
        if self.found.stream is None:
            row_key, etag = ENTITY, self._entity_etag
        await self._write(Operation.merge(row_key, {"Refuses": True}, etag), *changes)

    async def strip(self, tombstone: Tombstone) -> None:
        """Replace them by ones that tell nothing of what there was. One request."""
        changes, entity = [], self.found.entity
        if self._head is not None:
            head = _bare(self._head, tombstone, self._head.horizon or tombstone.at)
            changes.append(Operation.replace(HEADER, {"Version": 0, **head.properties()}, self._stream_etag))
        if entity is not None:
            bare = Entity(self.found.key, entity.algorithm, b"", entity.schema, tombstone=tombstone)
            changes.append(Operation.replace(ENTITY, bare.properties(), self._entity_etag))
        await self._table.transact(self.found.key, changes)

    async def _write(self, change: Operation, *others: Operation) -> None:
        etag, *_ = await self._table.transact(self.found.key, [change, *others])
        if change.row_key == HEADER:
            self._stream_etag = etag
        else:
            self._entity_etag = etag


def _bare(head: Head, tombstone: Tombstone, horizon: int) -> Head:
    return Head(
        None, head.schema, last_now=tombstone.at, horizon=horizon, undated_cut=True, tombstone=tombstone
    )


async def _delete_what_is_elsewhere(tables: Tables, scope: Scope, tombstones: _Tombstones, now: int) -> None:
    """Delete tokens, rules and dead letters of publications, as they were read; a hold stays.

    A request for each token, one for its policy, one for each 1,000 letters of all objects, and as many again for what
    there is. Raises `RowError` when somebody has written some of it since.
    """
    token_store, policies = TokenStore(tables.token_store), Policies(tables.states, lambda: now)
    tokens, policy = await token_store.find(tombstones.found.tokens), await policies.get(scope)
    letters = await letters_of(tables.states, scope.handler or "", scope.business_id or "")
    if not (tokens or policy.rules or letters):
        return
    await tombstones.touch()
    for token in tokens:
        await token_store.delete(*token)
    if tokens:
        await token_store.flush()
    await policies.remove_rules_of(policy)
    await delete_letters(tables.states, letters)


async def _delete_documents(
    table: Table, documents: ListedDocuments, scope: Scope, tombstones: _Tombstones, now: int
) -> None:
    """Delete the documents that are there. A new history stores documents under other names."""
    folder = object_folder(scope.handler or "", scope.business_id or "")
    attempts = await registrations_of(table, tombstones.found.key)
    await tombstones.touch()
    for registration in attempts:
        if registration.given_up_at is None:
            await give_up(table, registration, now)
    names = await documents.names(folder)
    await tombstones.touch()
    for name in names:
        await documents.delete(name)
    await documents.remove(folder)


async def referenced_documents(table: Table, handler: str, business_id: str) -> list[str]:
    """Return the names of the documents that the versions of an object refer to, as far as these can be read.

    Costs one request for each 1,000 runs. Versions that were cut are not known any more.
    """
    try:
        stream_versions = await versions(table, handler, business_id) or []
    except StoredDataError:
        return []
    return [
        unpack(value)["name"]
        for version in stream_versions
        for name, value in (version.record.captured or {}).items()
        if name.startswith(DOCUMENT)
    ]


# What there is of a business object, before it is forgotten.


@dataclass(frozen=True, slots=True)
class Trace:
    """What tables hold of an object: versions and messages, rows by kind, and when it was forgotten before.

    `messages` are those that its entity, of an algorithm with an outbox, remembers or has unfinished.
    """

    key: str
    algorithm: str | None
    versions: int
    messages: int
    rows: dict[str, int]
    forgotten_at: int | None = None
    held: bool = False


async def find_trace(tables: Tables, handler: str, business_id: str) -> Trace | None:
    """Return what there is of an object, None when there is nothing.

    Reads its keys, its header, and the records of publications.
    """
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
