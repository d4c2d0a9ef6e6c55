"""The head of a state stream: what its header row says, so that one query tells all a batch needs."""

from __future__ import annotations

from dataclasses import dataclass

from eventstore import Int64, Properties, Value
from eventstore.partition import HEADER
from runtime.clock import to_datetime
from runtime.storage import limits
from runtime.storage.chunks import chunk_names, join, split
from runtime.storage.damage import expect, reading
from runtime.storage.letters import NONE_WAIT, WAITING_PROPERTIES, Waiting, read_waiting
from runtime.storage.properties import INT32, microseconds, number
from runtime.storage.tail import Tail, read_tail
from runtime.storage.tombstone import TOMBSTONE_PROPERTIES, Tombstone, read_tombstone

_TAIL = chunk_names("Tail", 2)
HEAD_PROPERTIES = [
    "State",
    "StateSchema",
    "StateVersions",
    "KeptFrom",
    "LastNow",
    "Horizon",
    "UndatedCut",
    *WAITING_PROPERTIES,
    *TOMBSTONE_PROPERTIES,
    *_TAIL,
]


@dataclass(frozen=True, slots=True)
class Head:
    """The newest version of a state, and from where on history is kept.

    `state` is the newest encoded state, None when it is too large for a header and must be read from the newest
    run. `tail` are the newest versions, None when all are in runs. `versions` counts all versions ever made,
    `kept_from` is the first that is kept. History up to the `horizon` may be gone: an older unknown message
    cannot be told from a duplicate, nor can one without a time when `undated_cut`. `waiting` tells of its letters. A
    stream that has letters only has no state yet, nor has one that was forgotten, which has a `tombstone`. Times are
    microseconds since 1970 UTC.
    """

    state: bytes | None
    schema: int
    versions: int = 0
    kept_from: int = 1
    last_now: int = 0
    horizon: int | None = None
    undated_cut: bool = False
    tail: Tail | None = None
    waiting: Waiting = NONE_WAIT
    tombstone: Tombstone | None = None

    @property
    def refuses(self) -> bool:
        """Whether the object was forgotten, and takes no message any more."""
        return self.tombstone is not None and self.tombstone.refuses

    def is_too_late(self, enqueued_at: int | None) -> bool:
        """Say whether an unknown message can no longer be told from a duplicate."""
        if enqueued_at is None:
            return self.undated_cut
        return self.horizon is not None and enqueued_at <= self.horizon

    def properties(self) -> Properties:
        """Return the header's properties."""
        properties: dict[str, Value] = {
            "StateSchema": self.schema,
            "StateVersions": Int64(self.versions),
            "LastNow": to_datetime(self.last_now),
        }
        if self.versions and self.state is not None and len(self.state) <= limits.MAX_HEAD_STATE_BYTES:
            properties["State"] = self.state
        if self.kept_from > 1:
            properties["KeptFrom"] = Int64(self.kept_from)
        if self.horizon is not None:
            properties["Horizon"] = to_datetime(self.horizon)
        if self.undated_cut:
            properties["UndatedCut"] = True
        properties.update(self.waiting.properties())
        if self.tombstone is not None:
            properties.update(self.tombstone.properties())
        if self.tail is not None:
            split(properties, _TAIL, self.tail.pack())
        return properties


def is_of_state(properties: Properties) -> bool:
    """Say whether the properties of a header are those of a state stream, even if one of them is lost."""
    return "StateVersions" in properties or "StateSchema" in properties


def read_head(properties: Properties) -> Head:
    """Return the head that a header's properties hold. Raises `StoredDataError`."""
    with reading("The header of the stream", HEADER):
        head = _head(properties)
        _check(head)
    return head


def _check(head: Head) -> None:
    """Raise `ValueError` when the numbers of a head cannot be those of one stream."""
    if head.schema < 1 or head.versions < 0 or not 1 <= head.kept_from <= head.versions + 1:
        problem = f"schema {head.schema}, {head.versions} versions, kept from {head.kept_from}"
        raise ValueError(problem)
    if head.tail is not None and head.tail.first + head.tail.count != head.versions + 1:
        problem = f"its tail ends with version {head.tail.first + head.tail.count - 1} of {head.versions}"
        raise ValueError(problem)


def _head(properties: Properties) -> Head:
    return Head(
        state=expect(properties.get("State"), bytes, None),
        schema=number(properties, "StateSchema", most=INT32),
        versions=number(properties, "StateVersions"),
        kept_from=number(properties, "KeptFrom", 1),
        last_now=microseconds(properties, "LastNow") or 0,
        horizon=microseconds(properties, "Horizon"),
        undated_cut=expect(properties.get("UndatedCut", False), bool),
        tail=read_tail(join(properties, _TAIL)) if _TAIL[0] in properties else None,
        waiting=read_waiting(properties),
        tombstone=read_tombstone(properties),
    )
