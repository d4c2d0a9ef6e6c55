"""Deciding on the state of a stream what happens next, and having the stream as it was when that is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import count
from typing import Generic

from eventstore.backoff import pause
from eventstore.errors import ConcurrencyConflictError
from eventstore.partition import Partition
from eventstore.sourcing.codec import Codec, E
from eventstore.sourcing.folding import Evolve, S, fold
from eventstore.sourcing.snapshot import Snapshot
from eventstore.stream import Stream

Decide = Callable[[S], Iterable[E]]
"""What happens next, given a state: no event, or some. Pure: called again when somebody else was faster.

It raises what it likes to refuse; nothing is written then.
"""


@dataclass(frozen=True, slots=True)
class Decided(Generic[S, E]):
    """The state after a decision, the events that it came to, and the stream as it is after them."""

    state: S
    events: tuple[E, ...]
    stream: Stream


async def decide(
    partition: Partition,
    decide: Decide[S, E],
    evolve: Evolve[S, E],
    *,
    initial: S,
    codec: Codec[E],
    snapshot: Snapshot[S] | None = None,
    attempts: int = 16,
) -> Decided[S, E]:
    """Load the state of a stream, decide on it, append the events; again after a pause when the stream has changed.

    Costs what `fold` costs and one request, for each attempt. Raises `ConcurrencyConflictError` when all attempts were
    in vain. Not tried again is what `decide` refuses, nor a write whose answer was lost (`StoreUnavailableError`):
    nobody knows whether it was carried out.
    """
    for failures in count(1):
        folded = await fold(partition, initial, evolve, codec=codec, snapshot=snapshot)
        events = tuple(decide(folded.state))
        if not events:
            return Decided(folded.state, (), folded.stream)
        state = reduce(evolve, events, folded.state)
        own = None if snapshot is None else snapshot.properties(folded.stream, len(events), state)
        try:
            written = await Stream.write(folded.stream, *map(codec.encode, events), properties=own)
            return Decided(state, events, written.stream)
        except ConcurrencyConflictError:
            if failures == attempts:
                raise
            await pause(partition.table, failures)
    raise AssertionError("The last attempt returns or raises.")
