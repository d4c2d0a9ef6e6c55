"""Short runs, and tails with any body."""

from typing import Any
from zlib import crc32

import msgpack

from eventstore import RecordedEvent
from runtime.versions.head import Tail
from runtime.versions.run import Commit, Run, StateVersion, VersionColumns


def version(number: int, **fields: Any) -> StateVersion:
    """Return a version of a message with this number for its id, which is as a test says and otherwise empty."""
    made = StateVersion(
        number.to_bytes(16, "big"), "Rang", bytes(16), 7, None, None, None, 1, bytes(16), bytes(16), None
    )
    return made._replace(**fields)


def run_of(*versions: StateVersion, before: bytes = b"{}") -> Run:
    return Run(1, 1, before, VersionColumns.of(versions), [Commit(len(versions), None, 7)])


def stored(run: Run, *, version: int = 1) -> RecordedEvent:
    return RecordedEvent(version, run.event().properties)


def joined(event: RecordedEvent, names: list[str]) -> bytes:
    """Return the bytes that stand in some properties of an event, each of which has no more than 64 KiB."""
    parts = [event.properties[name] for name in names if name in event.properties]
    assert all(isinstance(part, bytes) and 0 < len(part) <= 65_536 for part in parts)
    return b"".join(part for part in parts if isinstance(part, bytes))


def with_body(body: bytes) -> bytes:
    """Return the bytes of a tail with a checksum that fits."""
    packed: bytes = msgpack.packb((2, crc32(body), body))
    return packed


def body_of(tail: Tail) -> bytes:
    """Return what the checksum of a tail is taken of."""
    _, _, body = msgpack.unpackb(tail.pack())
    return bytes(body)
