"""State versions as facts: what a table in memory holds of the books, read by the shipped reader."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from typing import NamedTuple

from eventstore import drive
from runtime.messages.outcome import OUTPUT_INDEX_BITS, Output
from runtime.storage.listing import versions
from tests.model.contents import Snapshot
from tests.model.scribe import BOOK

HANDLERS = ("Scribe", "Copyist")


class Place(NamedTuple):
    """Where a version stands."""

    handler: str
    number: int


class Version(NamedTuple):
    """What a version says: the message that made it, its recorded time, and the lines before and after."""

    message: str
    type: str
    now: int
    before: tuple[str, ...]
    after: tuple[str, ...]

    def __str__(self) -> str:
        """Return it as schedules show it."""
        return f"by {self.message}: {' '.join(self.after) or 'nothing'}"


class Handled(NamedTuple):
    """What a run returns: the messages that it answers for, and in a batch their statuses."""

    messages: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()


def committed_versions(snapshot: Snapshot) -> Mapping[Hashable, Version]:
    """Return the versions that a table holds, by their places."""
    table = snapshot.table("states")
    return {
        Place(handler, stored.number): Version(
            stored.message_id, stored.record.type, stored.record.now, _lines(stored.before), _lines(stored.after)
        )
        for handler in HANDLERS
        for stored in drive(versions(table, handler, BOOK)) or ()
    }  # fmt: skip


def place_of(output: Output) -> tuple[int, int]:
    """Return the number of the version that an output speaks of, and its position among its outputs."""
    return output.sequence >> OUTPUT_INDEX_BITS, output.sequence & ((1 << OUTPUT_INDEX_BITS) - 1)


def _lines(encoded: bytes) -> tuple[str, ...]:
    return tuple(json.loads(encoded)["lines"])
