"""From the events of a stream to the state that they amount to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Generic, TypeVar

from eventstore.errors import StreamTruncatedError
from eventstore.partition import Partition
from eventstore.sourcing.codec import Codec, E
from eventstore.sourcing.snapshot import Snapshot
from eventstore.stream import Stream

S = TypeVar("S")

Evolve = Callable[[S, E], S]
"""What an event makes of a state: pure, and without a reason to refuse, for the event has happened."""


@dataclass(frozen=True, slots=True)
class Folded(Generic[S]):
    """A state, and the stream as it was at the version whose state it is; transient when there is no stream."""

    state: S
    stream: Stream


async def fold(
    partition: Partition,
    initial: S,
    evolve: Evolve[S, E],
    *,
    codec: Codec[E],
    snapshot: Snapshot[S] | None = None,
) -> Folded[S]:
    """Fold the events of a stream into the initial state, or those after its snapshot into that.

    One request for each 1,000 rows; with a snapshot one, and one for each 1,000 events after it. Raises
    `StreamTruncatedError` when an event that is needed has been cut away, and what the codec raises.
    """
    if snapshot is None:
        found = await Stream.try_read(partition, slice_size=None)
        if found is None:
            return Folded(initial, Stream(partition))
        stream, version, state, events = found.stream, 0, initial, found.events
    else:
        opened = await Stream.try_open(partition)
        if opened is None:
            return Folded(initial, Stream(partition))
        stream, (version, state) = opened, snapshot.read(opened) or (0, initial)
        events = (
            await Stream.read_events(stream, version + 1, stream.version) if version < stream.version else ()
        )
    if stream.first_version > version + 1:
        raise StreamTruncatedError(str(partition), version + 1)
    return Folded(reduce(evolve, map(codec.decode, events), state), stream)
