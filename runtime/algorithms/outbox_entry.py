"""Entries of an outbox: what one message has to send, until it is sent, and that it was processed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgpack

from runtime.algorithms.entry_tokens import EntryTokens
from runtime.columns import UNREADABLE
from runtime.errors import RunCorruptError
from runtime.message_ids import IdKey
from runtime.outcome import OUTPUT_INDEX_BITS, Output

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept of one message.

    `fingerprint` tells its copies from another message with its id; `now` is when it was handled, in microseconds,
    and `version` the version that it made. `outputs` are None once they are dispatched.

    `tokens` says which tokens the outputs have, None where messages have no tokens.
    """

    fingerprint: bytes
    now: int
    version: int
    outputs: tuple[Output, ...] | None
    tokens: EntryTokens | None = None

    @property
    def is_pending(self) -> bool:
        """Whether there is something left to do for it."""
        return self.outputs is not None

    def dispatched(self) -> Entry:
        """Return the entry without its outputs."""
        return replace(self, outputs=None)


def pack_entries(entries: Mapping[IdKey, Entry]) -> bytes:
    """Return entries as they are stored."""
    packed: bytes = msgpack.packb((_FORMAT, [_packed(key, entry) for key, entry in entries.items()]))
    return packed


def unpack_entries(data: bytes) -> dict[IdKey, Entry]:
    """Return entries as they were stored. Raises `RunCorruptError`."""
    try:
        form, entries = msgpack.unpackb(data)
        if form == _FORMAT:
            return {key: _entry(*fields) for key, *fields in entries}
    except UNREADABLE as error:
        raise RunCorruptError(f"The outbox of an entity cannot be read: {error!r}.") from error
    raise RunCorruptError(f"The outbox of an entity has format {form}; this code reads format {_FORMAT}.")


def outputs_of(published: Iterable[tuple[Any, ...]], version: int, now: int) -> tuple[Output, ...]:
    """Return what was published (id, type, body, headers) as messages of a log."""
    first = version << OUTPUT_INDEX_BITS
    return tuple(
        Output(message_id, name, body, first + index, now, headers)
        for index, (message_id, name, body, headers) in enumerate(published)
    )


def _packed(key: IdKey, entry: Entry) -> tuple[Any, ...]:
    sent = (
        None if entry.outputs is None else [(*output[:3], dict(output.headers)) for output in entry.outputs]
    )
    fields = (key, entry.fingerprint, entry.now, entry.version, sent)
    return fields if entry.tokens is None else (*fields, tuple(entry.tokens))


def _entry(
    fingerprint: bytes,
    now: int,
    version: int,
    sent: list[tuple[Any, ...]] | None,
    tokens: tuple[Any, ...] | None = None,
) -> Entry:
    outputs = None if sent is None else outputs_of(sent, version, now)
    return Entry(fingerprint, now, version, outputs, None if tokens is None else EntryTokens.read(*tokens))
