"""Entities: a business state and its outbox in one row, so that one conditional write changes both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eventstore import Int64, Properties, Row, Value
from runtime.algorithms.outbox.entry import Entry, pack_entries, packed_size, unpack_entries
from runtime.algorithms.refusals import Refusals
from runtime.batches.open_batches import BatchKey
from runtime.clock import to_datetime
from runtime.messages.message_ids import IdKey
from runtime.storage.chunks import CHUNK, chunk_names, join, split
from runtime.storage.damage import expect, reading_row
from runtime.storage.letters import NO_LETTERS, NONE_WAIT, Letter, Letters, Waiting, read_waiting
from runtime.storage.limits import MAX_STATE_BYTES
from runtime.storage.properties import INT32, microseconds, number, text
from runtime.storage.tombstone import Tombstone, read_tombstone

MAX_OUTBOX_BYTES = 512 * 2**10
"""The limit for all entries when one is added. The row has room for more, as attempts are registered later."""

_STATE = chunk_names("State", MAX_STATE_BYTES // CHUNK)
_OUTBOX = chunk_names("Outbox", MAX_OUTBOX_BYTES // CHUNK + 2)


@dataclass(frozen=True, slots=True)
class Entity:
    """A business object as it was read, or as it is going to be stored.

    `key` is its partition key; `state` is encoded, in schema version `schema`; `version` counts the messages that
    were processed, and `last_now` is when the newest of them was, in microseconds. `etag` is None before the first
    write. `outbox_bytes` is what the entries take as they are stored, None when that was not counted.

    `letters` are the deliveries that were refused, in `letter_rows` rows of their own; `refused` are those that are
    going to be stored in their place, None when none was changed. An entity that was forgotten has a `tombstone`.
    """

    key: str
    algorithm: str
    state: bytes
    schema: int
    version: int = 0
    last_now: int = 0
    outbox: Mapping[IdKey, Entry] = field(default_factory=dict)
    etag: str | None = None
    outbox_bytes: int | None = field(default=None, compare=False)
    letter_rows: int = 0
    waiting: Waiting = NONE_WAIT
    letters: Letters = field(default=NO_LETTERS, compare=False)
    refused: Sequence[Letter] | None = field(default=None, compare=False)
    tombstone: Tombstone | None = None

    def with_entry(self, message_id: IdKey, entry: Entry) -> Entity:
        """Return the entity with an entry, in the place of the one that the message had."""
        before = self.outbox.get(message_id)
        size = self._outbox_size() + packed_size(message_id, entry)
        if before is not None:
            size -= packed_size(message_id, before)
        return replace(self, outbox={**self.outbox, message_id: entry}, outbox_bytes=size)

    def with_refusals(self, refusals: Refusals, decided: int) -> Entity:
        """Return the entity with the letters after the first `decided` deliveries; the same when none changed."""
        letters = refusals.letters(decided)
        if letters is None:
            return self
        waiting = self.waiting.after(letters, refusals.beyond_limit(decided))
        return replace(self, waiting=waiting, refused=letters)

    def without(self, message_ids: Collection[IdKey]) -> Entity:
        """Return the entity without the entries of messages; the same when it has none of them."""
        rest = {key: entry for key, entry in self.outbox.items() if key not in message_ids}
        return self if len(rest) == len(self.outbox) else replace(self, outbox=rest, outbox_bytes=None)

    def finished(self, message_ids: Collection[IdKey]) -> Entity:
        """Return the entity with nothing left to publish for messages; the same when there is nothing."""
        found = {key: self.outbox[key] for key in message_ids if key in self.outbox}
        done = {key: entry.finished() for key, entry in found.items() if entry.is_pending}
        return replace(self, outbox={**self.outbox, **done}, outbox_bytes=None) if done else self

    def without_old(self, latest: int) -> Entity:
        """Return the entity without the entries that were finished and handled at a time or before."""
        old = {key for key, entry in self.outbox.items() if not entry.is_pending and entry.now <= latest}
        return self.without(old)

    @property
    def pending(self) -> int:
        """How many entries are unfinished."""
        return sum(entry.is_pending for entry in self.outbox.values())

    def pending_until(self, latest: int) -> list[IdKey]:
        """Return the single messages with pending entries that were handled at a time, in microseconds, or before.

        Those of a batch are left to the batch, whose outcomes may be uncommitted.
        """
        return [
            key
            for key, entry in self.outbox.items()
            if entry.is_pending and entry.batch is None and entry.now <= latest
        ]

    def pending_of(self, includes: Callable[[BatchKey | None], bool]) -> list[IdKey]:
        """Return the messages with pending entries of some batches; None stands for single messages."""
        return [key for key, entry in self.outbox.items() if entry.is_pending and includes(entry.batch)]

    @property
    def too_large(self) -> str | None:
        """Say what does not fit the row, None when all does."""
        if len(self.state) > MAX_STATE_BYTES:
            return f"The state would take {len(self.state)} bytes; up to {MAX_STATE_BYTES} can be stored."
        size = self._outbox_size()
        if size > MAX_OUTBOX_BYTES:
            return f"The outbox would take {size} bytes; up to {MAX_OUTBOX_BYTES} can be stored.{self._way_out()}"
        return None

    def _way_out(self) -> str:
        """Say what can make room for the newest entry, if anything can."""
        waiting = sum(entry.is_pending for entry in self.outbox.values()) - 1
        remembered = len(self.outbox) - waiting - 1
        if waiting:
            return f" Others wait there to be finished ({waiting}): redrive it when their batch has ended."
        if remembered:
            return f" Old ones are remembered there ({remembered}): forget some (`consistent evict`), and redrive it."
        return ""

    def _outbox_size(self) -> int:
        return len(pack_entries(self.outbox)) if self.outbox_bytes is None else self.outbox_bytes

    def properties(self) -> Properties:
        """Return the properties of the row."""
        properties: dict[str, Value] = {
            "Algorithm": self.algorithm,
            "StateSchema": self.schema,
            "Version": Int64(self.version),
            "LastNow": to_datetime(self.last_now),
            "Pending": self.pending,
        }
        split(properties, _STATE, self.state)
        if self.outbox:
            split(properties, _OUTBOX, pack_entries(self.outbox))
        if self.letter_rows:
            properties["LetterRows"] = self.letter_rows
        properties.update(self.waiting.properties())
        if self.tombstone is not None:
            properties.update(self.tombstone.properties())
        return properties


def read_entity(row: Row) -> Entity:
    """Return the entity that a row holds. Raises `StoredDataError`."""
    with reading_row("The entity", row):
        return _entity(row)


def _entity(row: Row) -> Entity:
    properties = row.properties
    outbox = join(properties, _OUTBOX) if _OUTBOX[0] in properties else None
    return Entity(
        row.partition_key,
        text(properties, "Algorithm"),
        expect(join(properties, _STATE), bytes) if _STATE[0] in properties else b"",
        number(properties, "StateSchema", most=INT32),
        number(properties, "Version"),
        microseconds(properties, "LastNow") or 0,
        {} if outbox is None else unpack_entries(outbox),
        row.etag,
        len(outbox or b""),
        number(properties, "LetterRows", 0, most=INT32),
        read_waiting(properties),
        tombstone=read_tombstone(properties),
    )
