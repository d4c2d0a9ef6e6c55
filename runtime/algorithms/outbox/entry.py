"""Entries of an outbox: that a message was processed, and its outputs until they are published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgpack

from handlers.unpacking import unpack
from runtime.algorithms.outbox.entry_tokens import EntryTokens
from runtime.batches.open_batches import BatchKey
from runtime.errors import StoredDataError
from runtime.messages.message_ids import IdKey
from runtime.messages.outcome import OUTPUT_INDEX_BITS, Output
from runtime.storage.damage import expect, reading

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept of one message.

    `fingerprint` tells its copies from another message with its id; `now` is when it was handled, in microseconds,
    and `version` the version that it made. `outputs` are None once the message is finished.

    `tokens` says which tokens the outputs have, None where messages have no tokens. `type` is the message's type and
    `batch` the batch that handled it, None for a single message; both are forgotten with the outputs.
    """

    fingerprint: bytes
    now: int
    version: int
    outputs: tuple[Output, ...] | None
    tokens: EntryTokens | None = None
    type: str = ""
    batch: BatchKey | None = None

    @property
    def is_pending(self) -> bool:
        """Whether the message is not finished."""
        return self.outputs is not None

    @property
    def to_publish(self) -> tuple[Output, ...]:
        """The outputs that are still to be published, with the names of their tokens."""
        outputs = self.outputs or ()
        return outputs if self.tokens is None else self.tokens.put_into(outputs)

    def finished(self) -> Entry:
        """Return the entry of the finished message, without outputs."""
        return replace(self, outputs=None, type="", batch=None)


def pack_entries(entries: Mapping[IdKey, Entry]) -> bytes:
    """Return entries as they are stored."""
    packed: bytes = msgpack.packb((_FORMAT, [_packed(key, entry) for key, entry in entries.items()]))
    return packed


def packed_size(key: IdKey, entry: Entry) -> int:
    """Return how many bytes an entry takes among others."""
    return len(msgpack.packb(_packed(key, entry)))


def unpack_entries(data: bytes) -> dict[IdKey, Entry]:
    """Return entries as they were stored. Raises `StoredDataError`."""
    with reading("The outbox of an entity"):
        form, entries = unpack(data)
        if form == _FORMAT:
            return {expect(key, str, bytes): _entry(*fields) for key, *fields in entries}
    raise StoredDataError(f"The outbox of an entity has format {form}; this code reads format {_FORMAT}.")


def outputs_of(published: Iterable[tuple[Any, ...]], version: int, now: int) -> tuple[Output, ...]:
    """Return what was published (id, type, body, headers) as messages of a log."""
    first = version << OUTPUT_INDEX_BITS
    return tuple(
        Output(message_id, name, body, first + index, now, headers)
        for index, (message_id, name, body, headers) in enumerate(published)
    )


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
    for message_id, name, body, headers in sent:
        expect(message_id, str), expect(name, str), expect(body, str), expect(headers, dict)
    given = None if tokens is None else EntryTokens.read(*tokens)
    of_batch = None if batch is None else BatchKey(batch, *numbered)
    return Entry(fingerprint, now, version, outputs_of(sent, version, now), given, type_, of_batch)
