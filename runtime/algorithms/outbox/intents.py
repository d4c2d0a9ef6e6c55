"""Intents: which attempts may have prepared side effects, registered in the entity before they prepare them.

Whoever loaded the entity before somebody wrote it has to load it again before he can write it. So only the attempt that
registered last can still commit; those that registered before it have lost.
"""

from __future__ import annotations

from typing import NamedTuple

import msgpack

from handlers.unpacking import unpack
from runtime.storage.damage import expect, reading


class Intent(NamedTuple):
    """An attempt that may have prepared so many effects. `at` is when it registered, in microseconds."""

    attempt: str
    effects: int
    at: int


class Intents(NamedTuple):
    """The intent that may still be committed, and those that have lost and are to be cleaned up."""

    latest: Intent | None = None
    lost: tuple[Intent, ...] = ()

    @property
    def size(self) -> int:
        """How many intents there are."""
        return len(self.lost) + (self.latest is not None)

    @property
    def attempts(self) -> set[str]:
        """The attempts with intents."""
        return {intent.attempt for intent in self.all_lost().lost}

    def registering(self, intent: Intent) -> Intents:
        """Return them with a new intent; the one before has lost."""
        return Intents(intent, self.all_lost().lost)

    def committed(self) -> Intents:
        """Return them without the latest, whose effects the outbox names now."""
        return Intents(None, self.lost)

    def all_lost(self) -> Intents:
        """Return them with none that may still be committed: whoever registered it has to read again."""
        return self if self.latest is None else Intents(None, (*self.lost, self.latest))

    def lost_before(self, latest: int) -> Intents:
        """Return them with the latest among those that lost, if it was registered at a time or before."""
        return self if self.latest is None or self.latest.at > latest else self.all_lost()

    def without(self, cleaned: tuple[Intent, ...]) -> Intents:
        """Return them without those that have been cleaned up."""
        return Intents(self.latest, tuple(intent for intent in self.lost if intent not in cleaned))

    def pack(self) -> bytes:
        """Return them as they are stored."""
        packed: bytes = msgpack.packb((self.latest, self.lost))
        return packed


NO_INTENTS = Intents()


def read_intents(data: bytes) -> Intents:
    """Return intents as they were stored. Raises `StoredDataError`."""
    with reading("The intents of an entity"):
        latest, lost = unpack(data)
        return Intents(None if latest is None else _intent(*latest), tuple(_intent(*each) for each in lost))


def _intent(attempt: str, effects: int, at: int) -> Intent:
    return Intent(expect(attempt, str), expect(effects, int), expect(at, int))
