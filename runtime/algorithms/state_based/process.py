"""State-based consistent messaging: load, invoke, store, publish.

A new message is handled on the newest state and adds a version. A duplicate is handled again on the version just
before the one that it made, with the context recorded then, so that it gives the same outputs with the same
ids, and stores nothing. Outcomes are given out last: a writer that lost a race has its append refused before
anybody sees what it computed.

After Masternak and Pobiega, "State-based consistent messaging" (exactly-once.github.io).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from eventstore import (
    ConcurrencyConflictError,
    InvalidKeyError,
    StoreUnavailableError,
    StreamTruncatedError,
    Table,
)
from handlers.app import HandlerDefinition
from runtime.algorithms.algorithm import AT_ONCE, Publish
from runtime.algorithms.publishing import publish_all
from runtime.algorithms.state_based.decide import Fold
from runtime.algorithms.state_based.transaction import Part
from runtime.batches.context import BatchContext
from runtime.clock import Clock
from runtime.messages.message_ids import IdKey
from runtime.messages.outcome import Outcome, Reason, Status, dead_letter, delivered_messages
from runtime.messages.parsing import Delivery, Prepared
from runtime.retries import RetryPolicy
from runtime.storage.stream import KnownVersion, LoadedStream, append, load_state, stream_partition

_READ_AGAIN = (ConcurrencyConflictError, StreamTruncatedError, StoreUnavailableError)


class StateBased:
    """Processes the ordered messages of one stream at a time, for one handler."""

    def __init__(
        self,
        table: Table,
        handler: HandlerDefinition,
        clock: Clock,
        batch: BatchContext,
        retries: RetryPolicy,
    ) -> None:
        self.table = table
        self.handler = handler
        self.clock = clock
        self.batch = batch
        self.retries = retries

    async def process(
        self,
        business_id: str,
        deliveries: Sequence[Delivery],
        *,
        delivered: Collection[IdKey] = (),
        stopped: bool = False,
    ) -> list[Outcome]:
        """Handle the deliveries of one stream, in their order, and return an outcome for each.

        `delivered` are messages that had their first delivery in this batch before these; `stopped` says that new
        messages are held back because of a dead letter before them.

        All copies of a message should stand together. Costs one query and one transaction; more when there are
        duplicates (see `load_state`), or more new versions than a transaction holds: then they are stored in
        parts, and no outcome is returned before its part is stored.

        After a lost race, and after an answer that never came, what was computed is dropped and the stream is
        read again: a version is taken for stored only when it is read. Raises `RetriesExhaustedError` after too
        many of these in a row, and `ReplayFailedError`.
        """
        try:
            stream_partition(self.table, self.handler.name, business_id)
        except InvalidKeyError as error:
            return [self._key_too_long(delivery, business_id, str(error)) for delivery in deliveries]
        outcomes: list[Outcome] = []
        retries = self.retries.start()
        stream: LoadedStream | None = None
        fresh: dict[IdKey, KnownVersion] = {}
        while len(outcomes) < len(deliveries):
            waiting = deliveries[len(outcomes) :]
            try:
                stream = stream or await self.load_state(business_id, waiting)
                fold = self.fold(stream, business_id, outcomes, fresh, delivered=delivered, stopped=stopped)
                part = self.invoke_handlers(fold, waiting)
                await self.store_state(stream, part)
            except _READ_AGAIN as error:
                stream, fresh = None, {}
                await retries.pause(error)
                continue
            outcomes += part.outcomes
            fresh = _still_needed(fresh, deliveries[len(outcomes) :])
            retries.progress()
        return outcomes

    def _key_too_long(self, delivery: Delivery, business_id: str, error: str) -> Outcome:
        if isinstance(delivery, Outcome):
            return delivery
        return dead_letter(delivery.envelope, Reason.KEY_TOO_LONG, error, self.handler.name, business_id)

    async def load_state(self, business_id: str, deliveries: Sequence[Delivery]) -> LoadedStream:
        """Load the newest state, and for each duplicate the version just before its own."""
        ids = {delivery.key for delivery in deliveries if isinstance(delivery, Prepared)}
        return await load_state(self.table, self.handler, business_id, ids)

    def fold(
        self,
        stream: LoadedStream,
        business_id: str,
        earlier: Sequence[Outcome],
        fresh: dict[IdKey, KnownVersion],
        *,
        delivered: Collection[IdKey],
        stopped: bool,
    ) -> Fold:
        """Return the fold that goes on after the `earlier` outcomes."""
        if self.batch.on_error == "stop-stream":
            stopped = stopped or any(outcome.status is Status.DEAD_LETTER for outcome in earlier)
        return Fold(
            self.handler,
            self.clock,
            self.batch,
            stream,
            business_id,
            fresh=fresh,
            delivered={*delivered, *delivered_messages(earlier)},
            stopped=stopped,
        )

    def invoke_handlers(self, fold: Fold, deliveries: Sequence[Delivery]) -> Part:
        """Handle deliveries until there are no more, or a transaction is full."""
        for delivery in deliveries:
            fold.handle(delivery)
            if fold.part.is_full:
                break
        return fold.part

    async def store_state(self, stream: LoadedStream, part: Part) -> None:
        """Append the new versions of a part, on the condition that nobody wrote since the load."""
        addition = part.finish(self.clock())
        if addition is not None:
            await append(stream, addition)


class StateBasedOneByOne:
    """Processes single messages of one handler, and publishes what they give out.

    Costs one query and one transaction for a new message, one or two queries for a duplicate.
    """

    def __init__(self, algorithm: StateBased, publish: Publish) -> None:
        self.algorithm = algorithm
        self.publish = publish

    async def process(self, message: Prepared) -> Outcome:
        """Handle a message, publish its outputs, and return what became of it and what was published."""
        (outcome,) = await self.algorithm.process(message.business_id, [message])
        if outcome.version is not None:
            await publish_all(self.algorithm.table, self.publish, outcome.outputs)
        return outcome

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:  # noqa: ARG002 - the interface's
        """Return 0: what is left to publish is not kept, it is what the message gives when it is redelivered."""
        return 0

    async def evict(self, older_than: timedelta, *, dry_run: bool = False) -> int:  # noqa: ARG002 - the interface's
        """Return 0: ids are kept in the versions, which truncation cuts."""
        return 0


def _still_needed(fresh: dict[IdKey, KnownVersion], waiting: Sequence[Delivery]) -> dict[IdKey, KnownVersion]:
    """Return the versions of messages of which more copies wait; the others need no memory."""
    keys = {delivery.key for delivery in waiting if isinstance(delivery, Prepared)}
    return {key: known for key, known in fresh.items() if key in keys}
