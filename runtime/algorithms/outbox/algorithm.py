"""The steps that all algorithms with an outbox share: load, check, invoke, store, publish, finish.

One conditional write changes the business state of an entity and adds an outbox entry with the outputs of the message.
Only then are the outputs published, and only then is the message finished. The entry shows until then that the message
was processed. The algorithms differ in what shows it afterwards, and say so in a few methods, the hooks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from eventstore import Table
from handlers.app import HandlerDefinition
from runtime.algorithms.algorithm import AT_ONCE, Publish
from runtime.algorithms.fresh_ids import NewId, fresh_id
from runtime.algorithms.outbox.entities import Entities
from runtime.algorithms.outbox.entity import Entity
from runtime.algorithms.outbox.invoking import after_forgetting, concluded, id_reused, invoke
from runtime.algorithms.publishing import publish_all
from runtime.algorithms.refusals import Refusals, business_id_of, decided_before, has_stream
from runtime.batches.context import BatchContext
from runtime.batches.open_batches import BatchKey, OpenBatches
from runtime.clock import Clock, cut_off, system_clock
from runtime.messages.copies import is_copy
from runtime.messages.deliveries import Delivery, Prepared
from runtime.messages.limits import USUAL, MessageLimits
from runtime.messages.message_ids import IdKey
from runtime.messages.outcome import Outcome, Output, Status
from runtime.retries import RetryPolicy, count_of_each, until_undisturbed


@dataclass(kw_only=True, eq=False, repr=False)
class OutboxAlgorithm(ABC):
    """Processes the messages of one handler, one at a time, with an outbox in each entity.

    `name` is the algorithm as the rows of entities have it. `new_id` draws an id for each attempt.
    """

    name: str
    table: Table
    handler: HandlerDefinition
    publish: Publish
    clock: Clock = system_clock
    new_id: NewId = fresh_id
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    limits: MessageLimits = USUAL
    entities: Entities = field(init=False)

    def __post_init__(self) -> None:
        self.retries = self.retries.beside(*self.tables())
        self.entities = Entities(self.table, self.handler, self.name, self.retries)

    async def process(self, message: Delivery, *, redrive_beside: OpenBatches | None = None) -> Outcome:
        """Handle a message, publish its outputs, and return the outcome with the outputs that were published.

        A message that was refused before stays so, unless it is redriven.
        """
        if isinstance(message, Prepared):
            message = self.entities.refusal(message) or message
        if isinstance(message, Outcome) and not has_stream(message):
            return message
        batch = BatchContext().redriving(redrive_beside)
        return await until_undisturbed(self.retries, partial(self.attempt, message, batch))

    async def attempt(self, message: Delivery, batch: BatchContext) -> Outcome:
        """Load, check, invoke, store, publish, finish."""
        entity = await self.entities.load(self.entities.key(business_id_of(message)))
        forgotten = after_forgetting(self.handler, entity, message)
        if forgotten is not None:
            return forgotten
        refusals = Refusals(entity.letters, batch)
        if isinstance(message, Outcome):
            return await self.refuse(entity, refusals, message, message)
        known = await self.known_elsewhere(entity, message)
        if known is not None:
            if known.is_dead_letter:
                return await self.refuse(
                    entity, refusals, message, decided_before(refusals, 0, message, known)
                )
            return await self.return_early(entity, message, known)
        status, attempt = Status.DUPLICATE, self.new_id()
        if message.key not in entity.outbox:
            changed = refusals.refusal(0, message) or self.invoke(entity, message, attempt)
            if isinstance(changed, Outcome):
                return await self.refuse(entity, refusals, message, changed)
            refusals.processed(0, message.key, message.fingerprint)
            entity, status = await self.entities.store(changed.with_refusals(refusals, 1)), Status.PROCESSED
        entry = entity.outbox[message.key]
        if not is_copy(message, entry.fingerprint):
            reused = decided_before(refusals, 0, message, id_reused(self.handler, message))
            return await self.refuse(entity, refusals, message, reused)
        entity = await self.make_ready(entity, {message.key: attempt})
        outputs = await self.publish_outputs(entity, message.key)
        if entry.batch is None:
            await self.finish(entity, [message.key])
        return concluded(self.handler, message, status, entry.version, outputs)

    async def refuse(
        self, entity: Entity, refusals: Refusals, message: Delivery, refused: Outcome
    ) -> Outcome:
        """Keep the message durably as a letter of its entity, if it is none yet, and return its outcome."""
        refusals.record(0, refused, message, version=entity.version, now=max(self.clock(), entity.last_now))
        changed = entity.with_refusals(refusals, 1)
        if changed is not entity:
            await self.entities.store(changed)
        await publish_all(self.table, self.publish, refused.outputs)
        return refused

    def invoke(
        self, entity: Entity, message: Prepared, attempt: str, batch: BatchKey | None = None
    ) -> Entity | Outcome:
        """Return the entity with the new state and an entry for the message, or the dead letter of the message.

        `batch` is the batch that handles the message, None for a single message.
        """
        return invoke(self.handler, entity, message, self.clock(), batch, limits=self.limits)

    async def publish_outputs(self, entity: Entity, message_id: IdKey) -> tuple[Output, ...]:
        """Publish the outputs that the entry of a message still has, and return them.

        What was committed is durable before the first of them. An entry that is gone was finished by another attempt.
        """
        entry = entity.outbox.get(message_id)
        if entry is None:
            return ()
        await publish_all(self.table, self.publish, entry.to_publish)
        return entry.to_publish

    async def return_early(self, entity: Entity, message: Prepared, known: Outcome) -> Outcome:
        """Return the outcome of a message that is known elsewhere, and remove an entry that a crash left behind."""
        if known.status is Status.DUPLICATE:
            await self.forget(entity, [message.key])
        return known

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        """Publish and finish messages whose worker died. Return how many.

        Costs one request for each 1,000 entities, and one for each entity that has something left.
        """
        latest = cut_off(self.clock, older_than)
        return await count_of_each(
            self.entities.unfinished(), self.retries, lambda key: self.sweep_entity(key, latest)
        )

    async def sweep_entity(self, key: str, latest: int) -> int:
        """Finish the messages of one entity that were handled at a time, in microseconds, or before."""
        entity = await self.entities.load(key)
        pending = entity.pending_until(latest)
        for message_id in pending:
            if message_id in entity.outbox:
                entity = await self.complete(entity, message_id)
        return len(pending)

    async def complete(self, entity: Entity, message_id: IdKey) -> Entity:
        """Publish and finish a message of which an entry is left, as far as that was not done."""
        if await self.is_finished(entity, message_id):
            return await self.forget(entity, [message_id])
        entity = await self.make_ready(entity, {message_id: self.new_id()})
        await self.publish_outputs(entity, message_id)
        return await self.finish(entity, [message_id])

    async def evict(self, older_than: timedelta, *, dry_run: bool = False) -> int:
        """Forget the ids of messages processed longer ago than `older_than`. Return how many.

        Costs one request for each 1,000 entities and one for each entity, and one more for each that has old ids.
        """
        latest = cut_off(self.clock, older_than)
        return await count_of_each(
            self.entities.all_keys(), self.retries, lambda key: self.evict_from(key, latest, dry_run=dry_run)
        )

    # The hooks, in which the algorithms differ.

    def tables(self) -> Sequence[Table]:
        """Return the tables that the algorithm reads and writes."""
        return [self.table]

    async def known_elsewhere(self, entity: Entity, message: Prepared) -> Outcome | None:
        """Return the outcome of a message that was finished, None when only its entity can tell.

        Asked after the entity was loaded: asked before, it could miss a message that another attempt is finishing.
        """
        return None

    async def is_finished(self, entity: Entity, message_id: IdKey) -> bool:
        """Say whether a message with an entry was finished, so that only its entry is left."""
        return False

    async def make_ready(self, entity: Entity, attempts: Mapping[IdKey, str]) -> Entity:
        """Do what must be done before the outputs of messages can be published, and return the entity as it is then.

        `attempts` are the ids of this attempt by message.
        """
        return entity

    @abstractmethod
    async def finish(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Mark messages whose outputs were published as done, and return the entity as it is then."""

    async def forget(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Remove the entries of messages, as far as they are there, and return the entity as it is then."""
        return await self.entities.update(entity, lambda current: current.without(message_ids))

    async def evict_from(self, key: str, latest: int, *, dry_run: bool = False) -> int:
        """Forget the messages of one entity that were processed at a time, in microseconds, or before."""
        return 0
