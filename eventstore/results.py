"""What reading and writing a stream give back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from eventstore.events import RecordedEvent
from eventstore.includes import Include
from eventstore.stream_value import StreamT_co


@dataclass(frozen=True, slots=True)
class StreamSlice(Generic[StreamT_co]):
    """Consecutive events of a stream, with the stream as it was when they were read.

    `is_end_of_stream` says that no event follows in the direction of the read.
    """

    stream: StreamT_co
    events: tuple[RecordedEvent, ...]
    is_end_of_stream: bool

    @property
    def has_events(self) -> bool:
        """Whether there is an event in the slice."""
        return bool(self.events)


@dataclass(frozen=True, slots=True)
class StreamWriteResult(Generic[StreamT_co]):
    """A stream after a write, the events with their versions, and the included rows with their ETags.

    `repeated` says that an idempotent write found its events stored: the stream is as it is now then, which may be
    further on, and there are no includes.
    """

    stream: StreamT_co
    events: tuple[RecordedEvent, ...]
    includes: tuple[Include, ...] = ()
    repeated: bool = False
