"""The head of a state stream: what its header row says, so that one query tells all a batch needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventstore import Int64, Properties, Value
from runtime.clock import is_in_calendar, to_datetime
from runtime.storage import limits
from runtime.storage.chunks import chunk_names, join, split
from runtime.storage.letters import Letter
from runtime.storage.properties import microseconds, number
from runtime.storage.tail import Tail, read_tail

_TAIL = chunk_names("Tail", 2)
HEAD_PROPERTIES = [
    "State",
    "StateSchema",
    "StateVersions",
    "KeptFrom",
    "LastNow",
    "Horizon",
    "UndatedCut",
    "Letters",
    "LettersFrom",
    "LettersUndated",
    "LettersBeyondLimit",
    *_TAIL,
]


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a header says of the letters of its stream.

    `count` letters wait. `oldest` is the oldest `enqueued_at` among them, None when none has one, and `undated` says
    that one has none. `beyond_limit` letters in all were not kept, as there were too many.
    """

    count: int = 0
    oldest: int | None = None
    undated: bool = False
    beyond_limit: int = 0

    def after(self, letters: Sequence[Letter], beyond_limit: int) -> Waiting:
        """Return what is to be said after some letters were changed, when so many more were not kept."""
        times = [letter.enqueued_at for letter in letters if letter.waits]
        dated = [moment for moment in times if moment is not None and is_in_calendar(moment)]
        return Waiting(
            len(times), min(dated, default=None), len(dated) < len(times), self.beyond_limit + beyond_limit
        )


NONE_WAIT = Waiting()


@dataclass(frozen=True, slots=True)
class Head:
    """The newest version of a state, and from where on history is kept.

    `state` is the newest encoded state, None when it is too large for a header and must be read from the newest
    run. `tail` are the newest versions, None when all are in runs. `versions` counts all versions ever made,
    `kept_from` is the first that is kept. History up to the `horizon` may be gone: an older unknown message
    cannot be told from a duplicate, nor can one without a time when `undated_cut`. `waiting` tells of its letters. A
    stream that has letters only has no state yet. Times are microseconds since 1970 UTC.
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
        if self.waiting.count:
            properties["Letters"] = self.waiting.count
        if self.waiting.oldest is not None:
            properties["LettersFrom"] = to_datetime(self.waiting.oldest)
        if self.waiting.undated:
            properties["LettersUndated"] = True
        if self.waiting.beyond_limit:
            properties["LettersBeyondLimit"] = self.waiting.beyond_limit
        if self.tail is not None:
            split(properties, _TAIL, self.tail.pack())
        return properties


def read_head(properties: Properties) -> Head:
    """Return the head that a header's properties hold."""
    state = properties.get("State")
    return Head(
        state=state if isinstance(state, bytes) else None,
        schema=number(properties, "StateSchema"),
        versions=number(properties, "StateVersions"),
        kept_from=number(properties, "KeptFrom", 1),
        last_now=microseconds(properties, "LastNow") or 0,
        horizon=microseconds(properties, "Horizon"),
        undated_cut=bool(properties.get("UndatedCut", False)),
        tail=read_tail(join(properties, _TAIL)) if _TAIL[0] in properties else None,
        waiting=_read_waiting(properties),
    )


def _read_waiting(properties: Properties) -> Waiting:
    return Waiting(
        number(properties, "Letters", 0),
        microseconds(properties, "LettersFrom"),
        bool(properties.get("LettersUndated", False)),
        number(properties, "LettersBeyondLimit", 0),
    )
