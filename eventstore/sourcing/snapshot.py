"""A state that is kept in the header of its stream, so that the events before it need not be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import TypeAdapter

from eventstore.limits import MAX_BINARY_BYTES
from eventstore.port import Properties, Value
from eventstore.stream_value import StreamValue

S = TypeVar("S")

STATE, VERSION, REVISION = "SnapshotState", "SnapshotVersion", "SnapshotRevision"


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[S]):
    """States of a type that pydantic knows, kept with the write that makes them, `every` so many events.

    Another `revision` than that of a stored state makes it count as absent: give a new one when the state or what the
    events make of it has changed. A state of more than 64 KiB in JSON is not kept.
    """

    state: type[S]
    revision: int = 1
    every: int = 1

    def read(self, stream: StreamValue) -> tuple[int, S] | None:
        """Return the version of the stored state and the state, None when there is none that counts."""
        properties = stream.properties or {}
        version, stored = properties.get(VERSION), properties.get(STATE)
        if (
            properties.get(REVISION) != self.revision
            or not isinstance(version, int)
            or not isinstance(stored, bytes)
        ):
            return None
        return version, TypeAdapter(self.state).validate_json(stored)

    def properties(self, stream: StreamValue, events: int, state: S) -> Properties | None:
        """Return the stream's properties with the state after so many more events, None to leave them as they are."""
        before, version = stream.properties or {}, stream.version + events
        kept = before.get(VERSION, 0) if before.get(REVISION) == self.revision else 0
        if isinstance(kept, int) and version - kept < self.every:
            return None
        encoded = TypeAdapter(self.state).dump_json(state)
        if len(encoded) > MAX_BINARY_BYTES:
            return None
        new: dict[str, Value] = {STATE: encoded, VERSION: version, REVISION: self.revision}
        return {**before, **new}
