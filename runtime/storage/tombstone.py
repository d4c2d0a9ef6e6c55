"""Tombstones: what is left of a business object that was forgotten, in the header of its stream or in its entity."""

from __future__ import annotations

from dataclasses import dataclass

from eventstore import Properties, Value
from runtime.clock import to_datetime
from runtime.storage.damage import expect
from runtime.storage.properties import microseconds

TOMBSTONE_PROPERTIES = ("Forgotten", "Refuses")


@dataclass(frozen=True, slots=True)
class Tombstone:
    """That an object was forgotten, and when, in microseconds since 1970 UTC.

    One that `refuses` takes no message any more. Any other begins a new history, for messages that were enqueued later.
    """

    at: int
    refuses: bool = True

    def properties(self) -> dict[str, Value]:
        """Return the properties that a row has for it."""
        mark: dict[str, Value] = {"Forgotten": to_datetime(self.at)}
        return {**mark, "Refuses": True} if self.refuses else mark


def read_tombstone(properties: Properties) -> Tombstone | None:
    """Return the tombstone that a row's properties hold, None when its object was never forgotten."""
    at = microseconds(properties, "Forgotten")
    if at is None and "Refuses" in properties:
        message = "the object refuses messages, and was never forgotten"
        raise ValueError(message)
    return None if at is None else Tombstone(at, expect(properties.get("Refuses", False), bool))
