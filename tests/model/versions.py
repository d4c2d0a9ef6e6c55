"""State versions as facts: what a table in memory holds of the books, read by the shipped reader."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from eventstore import drive
from runtime.messages.digests import fingerprint
from runtime.messages.outcome import OUTPUT_INDEX_BITS, Outcome, Output, Reason
from runtime.versions.stream import versions
from tests.model.contents import Snapshot
from tests.model.scribe import BOOK

_BY_STATE = (Reason.HANDLER_ERROR, Reason.HELD_BACK)

NOT_TOLD = b""
"""The content of a version that does not tell it."""

HANDLERS = ("Scribe", "Copyist")


class Place(NamedTuple):
    """Where a version stands."""

    handler: str
    number: int


class Version(NamedTuple):
    """What a version says: the message and the batch that made it, its recorded time, the lines before and after."""

    message: str
    type: str
    now: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    batch: str | None = None
    content: bytes = NOT_TOLD

    def __str__(self) -> str:
        """Return it as schedules show it."""
        return f"by {self.message}: {' '.join(self.after) or 'nothing'}"


class Delivered(NamedTuple):
    """A delivery: the message, and what tells its body from others under its id."""

    message: str
    content: bytes


class Handled(NamedTuple):
    """What a run returns: the messages whose versions it answers for, in a batch the statuses, and what it refused."""

    messages: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    refused: tuple[Delivered, ...] = ()
    too_late: tuple[str, ...] = ()


def committed_versions(snapshot: Snapshot) -> Mapping[Hashable, Version]:
    """Return the versions that a table holds, by their places."""
    table = snapshot.table("states")
    return {
        Place(handler, stored.number): Version(
            stored.message_id,
            stored.record.type,
            stored.record.now,
            _lines(stored.before),
            _lines(stored.after),
            stored.batch,
            stored.record.fingerprint,
        )
        for handler in HANDLERS
        for stored in drive(versions(table, handler, BOOK)) or ()
    }  # fmt: skip


def refused_of(outcomes: Iterable[Outcome]) -> tuple[Delivered, ...]:
    """Return which deliveries were refused by the state, or held back behind such a one."""
    envelopes = [outcome.envelope for outcome in outcomes if outcome.reason in _BY_STATE]
    return tuple(
        Delivered(each.message_id, fingerprint(each.type, each.body, packed=False)) for each in envelopes
    )


def place_of(output: Output) -> tuple[int, int]:
    """Return the number of the version that an output speaks of, and its position among its outputs."""
    return output.sequence >> OUTPUT_INDEX_BITS, output.sequence & ((1 << OUTPUT_INDEX_BITS) - 1)


def _lines(encoded: bytes) -> tuple[str, ...]:
    return tuple(json.loads(encoded)["lines"])
