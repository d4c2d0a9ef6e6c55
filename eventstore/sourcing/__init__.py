"""What an event-sourced program writes each time: typed events, folding them to a state, deciding on it.

    events = EventCodec(Opened, Deposited, Withdrawn)

    async def withdraw(account: Partition, amount: int) -> None:
        await decide(account, lambda balance: withdrawal(balance, amount), evolve, initial=0, codec=events)

The events are pydantic models, `decide` and `evolve` are pure functions, and all that waits is in here.
"""

from __future__ import annotations

from eventstore.sourcing.codec import EventCodec
from eventstore.sourcing.deciding import Decided, decide
from eventstore.sourcing.folding import Folded, fold
from eventstore.sourcing.snapshot import Snapshot

__all__ = ["Decided", "EventCodec", "Folded", "Snapshot", "decide", "fold"]
