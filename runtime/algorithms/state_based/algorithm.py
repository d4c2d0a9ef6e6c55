"""State-based consistent messaging: load, invoke, store, publish.

A new message is handled on the newest state and adds a version. A duplicate is replayed on the version before its own
with the recorded context, so it gives the same outputs with the same ids, and stores nothing.

After Masternak and Pobiega, "State-based consistent messaging" (exactly-once.github.io).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from eventstore import InvalidKeyError, Table
from handlers.app import HandlerDefinition
from runtime.algorithms.algorithm import AT_ONCE, Publish, publish_all
from runtime.algorithms.refusals import has_stream
from runtime.algorithms.state_based.decide import Decider
from runtime.algorithms.state_based.transaction import CommitDraft, SealedCommit
from runtime.clock import Clock
from runtime.documents import Commit, Documents, Drafts
from runtime.errors import UsageError
from runtime.ledger.batch import NOTHING, BatchContext, OpenBatches, Seen
from runtime.ledger.ledger import ConsumerBatches
from runtime.messages.outcome import Outcome, Outcomes, Reason, Status, dead_letter
from runtime.messages.parsing import Deliveries, Delivery
from runtime.retries import READ_AGAIN, RetryPolicy
from runtime.versions.properties import error_location
from runtime.versions.readable import read_state
from runtime.versions.stream import History, append, load, stream_partition


@dataclass(eq=False, repr=False)
class StateBased:
    """Processes the messages of one handler, one stream at a time."""

    table: Table
    handler: HandlerDefinition
    clock: Clock
    batch: BatchContext
    retries: RetryPolicy
    documents: Documents | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.retries = self.retries.beside(self.table)

    def on_behalf_of(self, batch: BatchContext) -> StateBased:
        """Return a copy for another batch."""
        return replace(self, batch=batch)

    async def process(
        self, business_id: str, deliveries: Sequence[Delivery], seen: Seen = NOTHING
    ) -> Sequence[Outcome]:
        """Handle the deliveries of one stream in order. Return an outcome for each.

        `seen`: the decisions on earlier deliveries of the stream. Copies of a message should be adjacent.

        Costs one query and one transaction, and more with duplicates (see `runtime.versions.stream`) or if the new
        versions exceed one transaction. Raises `RetriesExhaustedError`, `StoredDataError` and `ReplayFailedError`.
        """
        try:
            partition = stream_partition(self.table, self.handler.name, business_id)
        except InvalidKeyError as error:
            name, reason, problem = self.handler.name, Reason.KEY_TOO_LONG, str(error)
            return [
                each
                if isinstance(each, Outcome)
                else dead_letter(each.envelope, reason, problem, name, business_id)
                for each in deliveries
            ]
        with error_location(self.table, partition.key):
            return await self._process(business_id, Deliveries.of(deliveries), seen)

    async def _process(self, business_id: str, deliveries: Deliveries, seen: Seen) -> Outcomes:
        decider = Decider(self.handler, self.clock, self.batch, business_id)
        outcomes = Outcomes(deliveries.envelopes, self.handler.name, business_id)
        history: History | None = None
        retries = self.retries.start()
        while len(outcomes) < len(deliveries):
            waiting = deliveries[len(outcomes) :]
            try:
                history = history or await self.load(business_id, waiting)
                sealed = self.invoke(decider, history, waiting, seen)
                history = await self.store(history, sealed)
            except READ_AGAIN as error:
                # Even after a timeout the versions may be stored. Only a read can tell, so drop the outcomes.
                history = None
                await retries.pause(error)
                continue
            outcomes += sealed.outcomes
            seen = sealed.seen
            retries.progress()
        return outcomes

    async def load(self, business_id: str, deliveries: Deliveries) -> History:
        """Load the newest state, and for each duplicate the version before its own."""
        return await load(self.table, self.handler, business_id, deliveries.ready_keys())

    def invoke(self, decider: Decider, history: History, deliveries: Deliveries, seen: Seen) -> SealedCommit:
        """Handle deliveries until a transaction is full. Pure except for clock, ids and captured values."""
        state = read_state(self.handler.codec, history.newest.encoded, history.stream.partition.key)
        attempt = None if self.documents is None else self.documents.new_id()
        draft = CommitDraft(history, deliveries, seen, state, self.batch, attempt=attempt)
        decider.decide(draft)
        return draft.seal(self.clock())

    async def store(self, history: History, sealed: SealedCommit) -> History:
        """Store the documents, then append the new versions with optimistic concurrency. Return the new history."""
        if sealed.update is not None:
            append_ = partial(append, history, sealed.update)
            history = await (self.with_documents(sealed, history, append_) if sealed.documents else append_())
        return history._replace(appended=sealed.appended)

    async def with_documents(
        self, sealed: SealedCommit, history: History, append_: Commit[History]
    ) -> History:
        """Register the attempt, store its documents, and append the versions that refer to the documents."""
        if self.documents is None or sealed.attempt is None:
            raise UsageError(
                f"{self.handler.name} stores documents (store_document), but no document store is configured: set "
                f"documents=URL or --documents."
            )
        key = history.stream.partition.key
        drafts = Drafts(key, sealed.attempt, sealed.documents, self.batch.key)
        return await self.documents.commit(drafts, append_)


@dataclass(eq=False, repr=False)
class StateBasedOneByOne:
    """Processes single messages of one handler, and publishes their outputs.

    With `consumer_batches`, the ledger records in bulk which outputs are published.
    """

    algorithm: StateBased
    publish: Publish
    consumer_batches: ConsumerBatches | None = None

    async def process(self, message: Delivery, *, redrive_beside: OpenBatches | None = None) -> Outcome:
        """Handle a message, publish its outputs, and return its outcome.

        See `Algorithm.process`. Costs one query and one transaction for a new message, and one or two queries for a
        duplicate.
        """
        if isinstance(message, Outcome) and not has_stream(message):
            return message
        batch = self.algorithm.batch.redriving(redrive_beside)
        if self.consumer_batches is None:
            return await self.publish_after(self.algorithm.on_behalf_of(batch), message)
        consumer_batch = await self.consumer_batches.enter()
        algorithm = self.algorithm.on_behalf_of(replace(batch, number=consumer_batch.number))
        name = algorithm.handler.name, message.business_id, message.envelope.message_id
        try:
            outcome = await self.publish_after(algorithm, message)
        except BaseException:
            self.consumer_batches.fail(consumer_batch, name)
            raise
        await self.consumer_batches.leave(consumer_batch, None if outcome.version is None else name)
        return outcome

    async def publish_after(self, algorithm: StateBased, message: Delivery) -> Outcome:
        """Store the version, then publish its outputs."""
        (outcome,) = await algorithm.process(message.business_id or "", [message])
        if outcome.status is not Status.TOO_LATE:
            await publish_all(algorithm.table, self.publish, outcome.outputs)
        return outcome

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:  # noqa: ARG002 - the interface's
        """Return 0: outputs are not stored, and redelivered messages publish their outputs again."""
        return 0

    async def evict(self, older_than: timedelta, *, dry_run: bool = False) -> int:  # noqa: ARG002 - the interface's
        """Return 0: ids are stored in the versions, which truncation deletes."""
        return 0
