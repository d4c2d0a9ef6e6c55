"""Forgetting a business object: all that its tables hold of it goes, and a tombstone stays in its place.

First the tombstone is put, on the condition that nobody wrote since the object was read: from then on no message
changes the object, and a worker that handled one meanwhile has its write refused and finds the tombstone. Then rows are
deleted, and last the tombstone is stripped of all that it still tells. Until then it refuses all messages, also when a
new history is to begin. A crash at any step leaves an object that refuses; forgetting it again finishes the work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from eventstore import ConcurrencyConflictError, Operation, Partition, Row, RowError, Stream, Table, pages
from eventstore.limits import MAX_OPERATIONS
from eventstore.partition import EVENT, HEADER
from eventstore.port import LeavesTraces
from runtime.algorithms.documents.effects import EFFECT, LAST_PARTITION, PARTITION, owner_of
from runtime.algorithms.outbox.entities import ENTITY
from runtime.algorithms.outbox.entity import Entity, read_entity
from runtime.algorithms.outbox.tokens import Token, TokenStore
from runtime.cleanup.forgotten_documents import ObjectDocuments, give_up_attempts
from runtime.cleanup.policies import Policies, PolicyReader, Scope
from runtime.documents.registrations import is_registration
from runtime.documents.store import ListedDocuments
from runtime.errors import UsageError
from runtime.publishing.erasing import count_letters, forget_letters
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.storage.damage import placed
from runtime.storage.head import HEAD_PROPERTIES, Head, read_head
from runtime.storage.run import INDEX_PROPERTIES, read_index
from runtime.storage.stream import stream_partition
from runtime.storage.tombstone import Tombstone

_KEPT = frozenset({HEADER, ENTITY})
_LETTER = "SS-LTR-"
_KINDS = {EVENT: "runs", "SS-IDX-": "index", _LETTER: "letters", "ID-": "ids"}
_ALL = ("", "\uffff")
_DOCUMENTS = "prepare-commit-publish"


class Tables(NamedTuple):
    """The tables that may hold something of an object: of the states, of the ids of messages, of the tokens."""

    states: Table
    deduplication_store: Table
    token_store: Table


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


@dataclass(frozen=True, slots=True)
class _Found:
    """An object as it was read: its stream, its entity, or both."""

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


async def look(tables: Tables, handler: str, business_id: str) -> Trace | None:
    """Return what there is of an object, None when there is nothing.

    Reads its keys, its header, and the dead letters of publications.
    """
    found = await _read(tables.states, handler, business_id)
    if found is None:
        return None
    rows: Counter[str] = Counter()
    for table in _distinct(tables.states, tables.deduplication_store):
        async for some in _rows(table, found.key):
            rows.update(_kind(row.row_key) for row in some)
    rows["tokens"] = len(found.tokens)
    rows["dead letters of publications"] = await count_letters(tables.states, handler, business_id)
    if _has_documents(found):
        rows["documents"] = len(await _documents(tables.states, found.key))
    head, entity, tombstone = found.head, found.entity, found.tombstone
    return Trace(
        found.key,
        entity.algorithm if entity else None,
        head.versions + 1 - head.kept_from if head else 0,
        len(entity.outbox) if entity else 0,
        {kind: count for kind, count in rows.items() if count},
        tombstone.at if tombstone else None,
        await _is_held(tables.states, found.key),
    )


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
    99, and nine more; one more for each 1,000 ids in a store of their own. With the store of `documents` all those of
    the object are deleted, which costs one request for each and three more. Raises `UsageError` when a policy holds the
    object, and `RetriesExhaustedError` after too many lost races in a row.
    """
    stored = None if documents is None else ObjectDocuments.of(documents, handler, business_id)
    attempt = partial(_forget_once, tables, handler, business_id, now, restart=restart, documents=stored)
    return await until_undisturbed(retries.beside(*tables), attempt)


async def scrub(tables: Tables) -> None:
    """Return when no file of a store holds what was deleted. Raises `StoreUnavailableError`."""
    for table in _distinct(*tables):
        if isinstance(table, LeavesTraces):
            await table.scrub()


async def _forget_once(
    tables: Tables,
    handler: str,
    business_id: str,
    now: int,
    *,
    restart: bool,
    documents: ObjectDocuments | None,
) -> bool:
    found = await _read(tables.states, handler, business_id)
    if found is None:
        return False
    if await _is_held(tables.states, found.key):
        raise UsageError(f"{found.key} is held by a policy: lift the hold (`consistent policy`) before.")
    try:
        refusing = await _refuse(tables.states, found, now)
        refusing = await _delete_what_is_elsewhere(tables, refusing)
        if tables.deduplication_store is not tables.states:
            refusing = await _delete_ids(tables, refusing)
        if documents is not None:
            refusing = await _delete_documents(tables.states, documents, refusing, now)
        refusing = await _delete_rows(tables.states, refusing)
        await Policies(tables.states, lambda: now).remove_rules(Scope(handler, business_id))
        await forget_letters(tables.states, handler, business_id)
        await _strip(tables.states, refusing, Tombstone(now, refuses=not restart))
    except RowError as error:
        raise ConcurrencyConflictError(found.key, str(error)) from error
    await tables.states.barrier()
    return True


async def _is_held(table: Table, key: str) -> bool:
    (decision,) = await PolicyReader(table).decide([key])
    return decision.is_held


async def _read(table: Table, handler: str, business_id: str) -> _Found | None:
    partition = stream_partition(table, handler, business_id)
    with placed(table, partition.key):
        return await _found(partition)


async def _found(partition: Partition) -> _Found | None:
    table = partition.table
    slice_ = await Stream.try_read(
        partition, slice_size=None, select=INDEX_PROPERTIES, header=HEAD_PROPERTIES
    )
    row = await table.get(partition.key, ENTITY)
    entity = None if row is None else read_entity(row)
    if slice_ is None:
        return None if entity is None else _Found(partition.key, None, None, entity, None)
    head = read_head(slice_.stream.properties or {})
    runs = [read_index(event) for event in slice_.events] + (head.tail.indexes() if head.tail else [])
    newest = max([run.newest for run in runs if run.newest is not None], default=None)
    return _Found(partition.key, slice_.stream, head, entity, newest)


async def _refuse(table: Table, found: _Found, now: int) -> _Found:
    """Put tombstones that refuse, and keep in them what is needed to finish; return the object as it is then."""
    stream, entity = found.stream, found.entity
    if stream is not None and found.head is not None:
        # A clock that is ahead may have stamped messages later than now.
        horizon = max(filter(None, (now, found.newest, found.head.horizon)))
        head = _bare(found.head, Tombstone(now), horizon)
        header = {"Version": stream.version, "FirstVersion": stream.version + 1, **head.properties()}
        (etag,) = await table.transact(found.key, [Operation.replace(HEADER, header, stream.etag or "")])
        found = replace(found, stream=replace(stream, etag=etag), head=head)
    if entity is not None:
        entity = replace(entity, tombstone=Tombstone(now))
        change = Operation.replace(ENTITY, entity.properties(), entity.etag or "")
        (etag,) = await table.transact(found.key, [change])
        found = replace(found, entity=replace(entity, etag=etag))
    return found


async def _strip(table: Table, found: _Found, tombstone: Tombstone) -> None:
    """Replace tombstones by ones that tell nothing of what there was."""
    changes = []
    if found.stream is not None and found.head is not None:
        head = _bare(found.head, tombstone, found.head.horizon or tombstone.at)
        changes.append(
            Operation.replace(HEADER, {"Version": 0, **head.properties()}, found.stream.etag or "")
        )
    if found.entity is not None:
        before = found.entity
        entity = Entity(found.key, before.algorithm, b"", before.schema, tombstone=tombstone)
        changes.append(Operation.replace(ENTITY, entity.properties(), before.etag or ""))
    await table.transact(found.key, changes)


def _bare(head: Head, tombstone: Tombstone, horizon: int) -> Head:
    return Head(
        None, head.schema, last_now=tombstone.at, horizon=horizon, undated_cut=True, tombstone=tombstone
    )


async def _delete_what_is_elsewhere(tables: Tables, found: _Found) -> _Found:
    tokens = TokenStore(tables.token_store)
    for token in found.tokens:
        await tokens.delete(token)
    if found.tokens:
        await tokens.flush()
    if _has_documents(found):
        documents = await _documents(tables.states, found.key)
        found = await _touch(tables.states, found)  # or they may be those of a new history
        for row in documents:
            await tables.states.transact(row.partition_key, [Operation.delete(EFFECT)])
    return found


async def _delete_ids(tables: Tables, found: _Found) -> _Found:
    """Delete the ids in a store of their own, and return the object as it is then.

    No transaction spans both tables. Ids that were read before a tombstone was touched are of what is forgotten, and an
    id that a new history adds has another ETag. One request for each 1,000 ids, one for that, one for each 100 ids.
    """
    async for ids in _rows(tables.deduplication_store, found.key):
        if ids:
            found = await _touch(tables.states, found)
        for some in _parts(ids, MAX_OPERATIONS):
            deletions = [Operation.delete(row.row_key, row.etag) for row in some]
            await tables.deduplication_store.transact(found.key, deletions)
    return found


async def _delete_documents(table: Table, documents: ObjectDocuments, found: _Found, now: int) -> _Found:
    """Delete the documents that are there, and return the object as it is then.

    What is listed before a tombstone is touched is of what is forgotten. A new history stores documents under others.
    """
    await give_up_attempts(table, found.key, now)
    names = await documents.names()
    found = await _touch(table, found)
    await documents.delete(names)
    return found


async def _delete_rows(table: Table, found: _Found) -> _Found:
    """Delete all rows of an object but tombstones, and return it as it is then.

    Each transaction touches a tombstone: once somebody else has forgotten the object too, and a new history began
    there, rows with the same keys are of that history.
    """
    async for rows in _rows(table, found.key):
        for some in _parts(rows, MAX_OPERATIONS - 1):
            found = await _touch(table, found, [Operation.delete(row.row_key) for row in some])
    return found


async def _touch(table: Table, found: _Found, changes: Sequence[Operation] = ()) -> _Found:
    """Write a tombstone as it was read, with other changes, and return the object as it is then."""
    holder = found.stream or found.entity
    row_key = ENTITY if found.stream is None else HEADER
    touch = Operation.merge(row_key, {"Refuses": True}, (holder.etag if holder else None) or "")
    etag, *_ = await table.transact(found.key, [touch, *changes])
    if found.stream is not None:
        return replace(found, stream=replace(found.stream, etag=etag))
    return found if found.entity is None else replace(found, entity=replace(found.entity, etag=etag))


def _parts(rows: Sequence[Row], size: int) -> list[Sequence[Row]]:
    return [rows[at : at + size] for at in range(0, len(rows), size)]


async def _rows(table: Table, key: str) -> AsyncIterator[Sequence[Row]]:
    """Give the rows of an object without properties, but for its tombstones, and attempts that a sweep has to forget.

    One request for each 1,000.
    """
    async for page in pages(partial(table.query, key, *_ALL, select=[])):
        yield [row for row in page.rows if row.row_key not in _KEPT and not is_registration(row.row_key)]


def _kind(row_key: str) -> str:
    return next((kind for prefix, kind in _KINDS.items() if row_key.startswith(prefix)), "others")


def _has_documents(found: _Found) -> bool:
    return found.entity is not None and found.entity.algorithm == _DOCUMENTS


async def _documents(table: Table, owner: str) -> list[Row]:
    """Return the documents of an entity. One request for each 1,000 documents of the table."""
    scan = partial(table.scan, EFFECT, PARTITION, LAST_PARTITION, select=["Owner"])
    return [row async for page in pages(scan) for row in page.rows if owner_of(row) == owner]


def _distinct(*tables: Table) -> list[Table]:
    return list({id(table): table for table in tables}.values())
