"""Entities: a state and its outbox in one row, so that one conditional write changes both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgpack

from eventstore import Include, Int64, Page, Partition, Properties, Row, Table, Value, pages
from eventstore.errors import ConcurrencyConflictError, RowError
from handlers import Published
from handlers.app import HandlerDefinition
from handlers.codec import unpack
from runtime.algorithms.algorithm import Refusals
from runtime.algorithms.outbox.stores import EntryTokens
from runtime.clock import to_datetime
from runtime.errors import UsageError
from runtime.ledger.batch import BatchKey
from runtime.messages.envelope import IdKey
from runtime.messages.outcome import Output, outputs_of
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions import dead_letter_rows
from runtime.versions import properties as typed
from runtime.versions.dead_letter_rows import NO_LETTERS, NONE_WAIT, Letter, Letters, Waiting
from runtime.versions.head import Tombstone, read_tombstone
from runtime.versions.limits import MAX_STATE_BYTES
from runtime.versions.properties import expect

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """The record of one message in an outbox."""

    fingerprint: bytes
    now: int  # when it was handled, in microseconds
    version: int  # the version that it made
    outputs: tuple[Output, ...] | None  # None: the message is finished, and type and batch are dropped too
    tokens: EntryTokens | None = None  # None: the algorithm has no tokens
    type: str = ""
    batch: BatchKey | None = None  # None: a single message

    @property
    def is_pending(self) -> bool:
        """Whether the message is unfinished. If so, its outputs may be unpublished."""
        return self.outputs is not None

    @property
    def to_publish(self) -> tuple[Output, ...]:
        outputs = self.outputs or ()
        return outputs if self.tokens is None else self.tokens.put_into(outputs)

    def finished(self) -> Entry:
        return replace(self, outputs=None, type="", batch=None)


def pack_entries(entries: Mapping[IdKey, Entry]) -> bytes:
    packed: bytes = msgpack.packb((_FORMAT, [_packed(key, entry) for key, entry in entries.items()]))
    return packed


def packed_size(key: IdKey, entry: Entry) -> int:
    return len(msgpack.packb(_packed(key, entry)))


def unpack_entries(data: bytes) -> dict[IdKey, Entry]:
    """Decode stored entries, by message id. Raises `StoredDataError` if they are corrupt."""
    with typed.reading("The outbox of an entity"):
        form, entries = unpack(data)
        if form != _FORMAT:
            raise ValueError(f"format {form} is unknown; this code reads format {_FORMAT}")
        return {expect(key, str, bytes): _entry(*fields) for key, *fields in entries}


def _packed(key: IdKey, entry: Entry) -> tuple[Any, ...]:
    fields = (key, entry.fingerprint, entry.now, entry.version)
    if entry.outputs is None:
        return fields
    sent = [(*output[:3], dict(output.headers)) for output in entry.outputs]
    tokens = None if entry.tokens is None else tuple(entry.tokens)
    batch, number = entry.batch or (None, None)
    return (*fields, sent, tokens, entry.type, batch, *([] if number is None else [number]))


def _entry(fingerprint: bytes, now: int, version: int, *pending: Any) -> Entry:  # noqa: ANN401 - as it was stored
    expect(fingerprint, bytes), expect(now, int), expect(version, int)
    if not pending:
        return Entry(fingerprint, now, version, None)
    sent, tokens, type_, batch, *numbered = pending
    expect(type_, str), expect(batch, str, None), [expect(number, int) for number in numbered]
    published = [
        Published(expect(id_, str), expect(name, str), expect(body, str).encode(), expect(headers, dict))
        for id_, name, body, headers in sent
    ]
    outputs = outputs_of(published, version, now)
    read = None if tokens is None else EntryTokens.read(*tokens)
    key = None if batch is None else BatchKey(batch, *numbered)
    return Entry(fingerprint, now, version, outputs, read, type_, key)


MAX_OUTBOX_BYTES = 512 * 2**10
"""The maximum size when an entry is added. The columns hold more, because attempts are registered later."""

_ROOM = 2 * typed.CHUNK  # for attempts that are registered later
_STATE = typed.chunk_names("State", MAX_STATE_BYTES // typed.CHUNK)
_OUTBOX = typed.chunk_names("Outbox", (MAX_OUTBOX_BYTES + _ROOM) // typed.CHUNK)


@dataclass(frozen=True, slots=True)
class Entity:
    """A business object, as read or to be stored. Times are in microseconds since 1970 UTC."""

    key: str  # the partition key
    algorithm: str
    state: bytes  # encoded in schema version `schema`
    schema: int
    version: int = 0  # the number of processed messages
    last_now: int = 0  # when the newest message was processed
    outbox: Mapping[IdKey, Entry] = field(default_factory=dict)
    etag: str | None = None  # None before the first write
    outbox_bytes: int | None = field(default=None, compare=False)  # the encoded size, if known
    letter_rows: int = 0
    waiting: Waiting = NONE_WAIT
    letters: Letters = field(default=NO_LETTERS, compare=False)  # as read
    refused: Sequence[Letter] | None = field(default=None, compare=False)  # as to be stored; None: unchanged
    tombstone: Tombstone | None = None

    def with_entry(self, message_id: IdKey, entry: Entry) -> Entity:
        before = self.outbox.get(message_id)
        size = self._outbox_size() + packed_size(message_id, entry)
        if before is not None:
            size -= packed_size(message_id, before)
        return replace(self, outbox={**self.outbox, message_id: entry}, outbox_bytes=size)

    def with_refusals(self, refusals: Refusals, decided: int) -> Entity:
        """Return the entity, with its dead letters updated by the first `decided` deliveries."""
        letters = refusals.letters(decided)
        if letters is None:
            return self
        return replace(self, waiting=refusals.summary(letters, decided), refused=letters)

    def without(self, message_ids: Collection[IdKey]) -> Entity:
        """Return the entity without the entries of messages, or unchanged if it has no such entries."""
        rest = {key: entry for key, entry in self.outbox.items() if key not in message_ids}
        return self if len(rest) == len(self.outbox) else replace(self, outbox=rest, outbox_bytes=None)

    def finished(self, message_ids: Collection[IdKey]) -> Entity:
        found = {key: self.outbox[key] for key in message_ids if key in self.outbox}
        done = {key: entry.finished() for key, entry in found.items() if entry.is_pending}
        return replace(self, outbox={**self.outbox, **done}, outbox_bytes=None) if done else self

    def without_old(self, latest: int) -> Entity:
        """Return the entity without finished entries handled up to `latest`, in microseconds since 1970 UTC."""
        old = {key for key, entry in self.outbox.items() if not entry.is_pending and entry.now <= latest}
        return self.without(old)

    @property
    def pending(self) -> int:
        return sum(entry.is_pending for entry in self.outbox.values())

    def pending_of(self, includes: Callable[[BatchKey | None], bool]) -> list[IdKey]:
        """Return the ids of unfinished messages whose batch `includes` accepts. A single message's batch is `None`."""
        return [key for key, entry in self.outbox.items() if entry.is_pending and includes(entry.batch)]

    def too_large(self, growth: int = 0) -> str | None:
        """Return the reason why the entity does not fit its row, with a remedy, or `None` if the entity fits.

        `growth`: how many bytes each entry may grow.
        """
        if len(self.state) > MAX_STATE_BYTES:
            return f"The state would take {len(self.state)} bytes; up to {MAX_STATE_BYTES} can be stored."
        size = self._outbox_size() + max(0, growth * len(self.outbox) - _ROOM)
        if size <= MAX_OUTBOX_BYTES:
            return None
        problem = f"The outbox would take {size} bytes; up to {MAX_OUTBOX_BYTES} can be stored."
        if waiting := self.pending - 1:
            return f"{problem} {waiting} other messages are unfinished: redrive this one after their batch has ended."
        if remembered := len(self.outbox) - 1:
            return (
                f"{problem} It remembers {remembered} older messages: evict some (`consistent truncate`), and redrive "
                "this one."
            )
        return problem

    def _outbox_size(self) -> int:
        return len(pack_entries(self.outbox)) if self.outbox_bytes is None else self.outbox_bytes

    def properties(self) -> Properties:
        properties: dict[str, Value] = {
            "Algorithm": self.algorithm,
            "StateSchema": self.schema,
            "Version": Int64(self.version),
            "LastNow": to_datetime(self.last_now),
            "Pending": self.pending,
        }
        typed.split(properties, _STATE, self.state)
        if self.outbox:
            typed.split(properties, _OUTBOX, pack_entries(self.outbox))
        if self.letter_rows:
            properties["LetterRows"] = self.letter_rows
        properties.update(self.waiting.properties())
        if self.tombstone is not None:
            properties.update(self.tombstone.properties())
        return properties


def read_entity(row: Row) -> Entity:
    """Decode the row of an entity, without its dead letters. Raises `StoredDataError` if the row is corrupt."""
    properties = row.properties
    with typed.reading_row("The entity", row):
        outbox = typed.join(properties, _OUTBOX) if _OUTBOX[0] in properties else None
        return Entity(
            row.partition_key,
            typed.text(properties, "Algorithm"),
            expect(typed.join(properties, _STATE), bytes) if _STATE[0] in properties else b"",
            typed.number(properties, "StateSchema", most=typed.INT32),
            typed.number(properties, "Version"),
            typed.microseconds(properties, "LastNow") or 0,
            {} if outbox is None else unpack_entries(outbox),
            row.etag,
            len(outbox or b""),
            typed.number(properties, "LetterRows", 0, most=typed.INT32),
            dead_letter_rows.read_waiting(properties),
            tombstone=read_tombstone(properties),
        )


ENTITY = "ENTITY"
"""The row key of an entity. The partition also holds its dead letters, and processed ids if these share the table."""


@dataclass(frozen=True, slots=True)
class Entities:
    """The entities of one handler, processed by one algorithm."""

    table: Table
    handler: HandlerDefinition
    algorithm: str
    retries: RetryPolicy

    def key(self, business_id: str) -> str:
        return f"{self.handler.name}-{business_id}"

    def business_id(self, key: str) -> str:
        return key.removeprefix(self.key(""))

    async def load(self, key: str) -> Entity:
        """Read an entity, or return a new one. Raises `UsageError` if another algorithm wrote it."""
        initial, schema = self.handler.initial, self.handler.codec.version
        row = await self.table.get(key, ENTITY)
        if row is None:
            return Entity(key, self.algorithm, initial, schema)
        entity = read_entity(row)
        if entity.algorithm != self.algorithm:
            raise UsageError(
                f"{key} was processed with the algorithm {entity.algorithm}, not {self.algorithm}: use that, or "
                "another table."
            )
        if entity.tombstone is not None and not entity.version:
            entity = replace(entity, state=initial, schema=schema)
        return await with_letters(self.table, entity)

    async def store(self, entity: Entity) -> Entity:
        return await store_entity(self.table, entity)

    async def update(self, entity: Entity, change: Callable[[Entity], Entity]) -> Entity:
        """Store `change(entity)` and return it. After a conflict, load the entity and change it again.

        Costs one request, or none if the change is a no-op.
        """

        async def attempt(before: Entity | None = None) -> Entity:
            before = before or await self.load(entity.key)
            changed = change(before)
            return before if changed is before else await self.store(changed)

        return await until_undisturbed(self.retries, attempt, first=partial(attempt, entity))

    async def unfinished(self) -> AsyncIterator[str]:
        """Yield the keys of entities with unfinished messages. Costs one request for every 1,000 entities."""
        async for row in self.rows():
            with typed.reading_row("The entity", row):
                pending = typed.number(row.properties, "Pending")
            if pending:
                yield row.partition_key

    async def rows(self) -> AsyncIterator[Row]:
        """Yield a row for each entity, with only the property `Pending`. Costs one request for every 1,000 entities."""
        after = f"{self.handler.name}."  # "." follows "-", so this bounds the keys of the handler
        scan = partial(self.table.scan, ENTITY, self.key(""), after, select=["Pending"])

        async def scan_page(*, continuation: str | None) -> Page:
            return await until_undisturbed(self.retries, partial(scan, continuation=continuation))

        async for page in pages(scan_page):
            for row in page.rows:
                if row.partition_key.startswith(self.key("")):
                    yield row


async def with_letters(table: Table, entity: Entity) -> Entity:
    """Return the entity with its dead letters. Costs one request, or none if there are no dead letters."""
    # The letters may be newer than the entity, but then the conditional write of the entity fails.
    if not entity.letter_rows:
        return entity
    return replace(entity, letters=await dead_letter_rows.letters_of(Partition.exact(table, entity.key)))


async def store_entity(table: Table, entity: Entity) -> Entity:
    """Write an entity in one request, and return it with its new ETag.

    Raises `ConcurrencyConflictError` if the stored entity has changed. After this error or a timeout, the caller must
    load the entity again.
    """
    includes: Sequence[Include] = ()
    if entity.refused is not None:
        kept, includes = entity.letters.changed(entity.refused)
        entity = replace(entity, letters=kept, letter_rows=len(kept.rows), refused=None)
    change = typed.written(ENTITY, entity.properties(), entity.etag)
    changes = [change, *includes]
    try:
        (etag, *_) = await table.transact(entity.key, changes)
    except RowError as error:
        raise ConcurrencyConflictError(entity.key, str(error)) from error
    return replace(entity, etag=etag)
