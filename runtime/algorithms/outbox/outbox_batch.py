"""Two passes: an outbox in batches, whose outputs are dispatched when their outcomes are committed, and not before.

The first pass handles the ordered messages of an entity and leaves their outputs in its outbox, with the batch that
they belong to. Then the batch commits its outcomes, which is how it dispatches. Only after that the second pass marks
the messages as dispatched, adds them to the store, or deletes their tokens. Done in the first pass, these would lose
outputs: a task that dies after them runs again, finds its messages finished, and has nothing to give out any more.

An entry belongs to its batch until that one is published or abandoned. Other batches, single messages and sweepers
may give out its outputs once more, but leave it as it is, so that a batch that is resumed gives what it would have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from eventstore import ConcurrencyConflictError
from handlers.app import HandlerDefinition
from runtime.algorithms.fresh_ids import NewId, fresh_id
from runtime.algorithms.outbox.entities import Entities
from runtime.algorithms.outbox.entity import Entity
from runtime.algorithms.outbox.entry import Entry
from runtime.algorithms.outbox.invoking import concluded, id_reused, refused
from runtime.batches.context import HELD_BACK, BatchContext
from runtime.batches.seen import NOTHING, Seen, is_dead_letter
from runtime.messages.copies import is_copy
from runtime.messages.envelope import Envelope
from runtime.messages.message_ids import IdKey, id_text
from runtime.messages.outcome import Outcome, Output, Reason, Status
from runtime.messages.parsing import Delivery, Prepared
from runtime.retries import RetryPolicy, until_undisturbed


class OutboxAlgorithm(Protocol):
    """The steps of an algorithm with an outbox."""

    handler: HandlerDefinition
    entities: Entities
    retries: RetryPolicy

    async def known_elsewhere(self, entity: Entity, message: Prepared) -> Outcome | None:
        """Return the outcome of a message by evidence that is not in its entity, which was loaded before."""

    def invoke(self, entity: Entity, message: Prepared, batch: str | None, attempt: str) -> Entity | Outcome:
        """Return the entity with what a message did, or the dead letter that the message is."""

    async def make_ready(self, entity: Entity, attempts: Mapping[IdKey, str]) -> Entity:
        """Do what is left before the outputs of messages can be dispatched, each as an attempt of this name."""

    def outputs(self, entry: Entry) -> tuple[Output, ...]:
        """Return what an entry has to send."""

    async def settle(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Finish messages whose outputs were dispatched."""


class OutboxBatch:
    """Processes the messages of a batch with an algorithm that has an outbox, for one handler."""

    def __init__(self, algorithm: OutboxAlgorithm, batch: BatchContext, new_id: NewId = fresh_id) -> None:
        self.algorithm = algorithm
        self.batch = batch
        self.new_id = new_id

    async def process(
        self,
        business_id: str,
        deliveries: Sequence[Delivery],
        seen: Seen = NOTHING,
    ) -> list[Outcome]:
        """Handle the deliveries of one entity, in their order, store, and return an outcome for each.

        This is the first pass. `seen` is what deliveries before these have decided. The entity is read once
        and written once, whatever the number of messages; what is asked of the de-duplication store or of the
        tokens is asked for each message. Raises `RetriesExhaustedError` after too many lost races in a row.
        """
        deliveries = [self._storable(delivery) for delivery in deliveries]
        if not any(isinstance(delivery, Prepared) for delivery in deliveries):
            return [delivery for delivery in deliveries if isinstance(delivery, Outcome)]
        attempt = partial(self.attempt, business_id, deliveries, seen)
        return await until_undisturbed(self.algorithm.retries, attempt)

    async def attempt(
        self,
        business_id: str,
        deliveries: Sequence[Delivery],
        seen: Seen,
    ) -> list[Outcome]:
        """Load, invoke for each message that is not known, store, make ready."""
        loaded = entity = await self.algorithm.entities.load(self.algorithm.entities.key(business_id))
        attempts: dict[IdKey, str] = {}
        ends: list[Delivery] = []
        dead_letter = seen.dead_letter
        for delivery in deliveries:
            stopped = dead_letter and self.batch.stops_streams
            entity, end = await self._handle(entity, delivery, attempts, stopped=stopped)
            ends.append(end)
            dead_letter = dead_letter or (isinstance(end, Outcome) and is_dead_letter(end))
        if entity is not loaded:
            entity = await self.algorithm.entities.store(entity)
        entity = await self.algorithm.make_ready(entity, attempts)
        return self._outcomes(entity, ends, set(seen.delivered))

    async def settle(self, business_id: str, message_ids: Collection[IdKey]) -> None:
        """Finish messages of one entity whose outcomes are committed. This is the second pass; again, it does nothing.

        Entries of other batches that are neither published nor abandoned are left alone. Costs two requests, one of
        them when nothing is left, and what the de-duplication store or the tokens take.
        """
        await until_undisturbed(self.algorithm.retries, partial(self.settle_once, business_id, message_ids))

    async def settle_once(self, business_id: str, message_ids: Collection[IdKey]) -> None:
        """Load, and finish what is there and may be finished."""
        entity = await self.algorithm.entities.load(self.algorithm.entities.key(business_id))
        given_out = [key for key in entity.pending_of(self._ours) if key in message_ids]
        if given_out:
            await self.algorithm.settle(entity, given_out)

    async def left_behind(self, business_id: str, latest: int) -> list[Outcome]:
        """Return the messages of an entity that nobody is going to finish, as duplicates with their outputs.

        These are single messages that were handled at a time, in microseconds, or before, and messages of batches
        that were abandoned. They are finished by committing these outcomes and then settling the messages.
        """
        return await until_undisturbed(
            self.algorithm.retries, partial(self.left_behind_now, business_id, latest)
        )

    async def left_behind_now(self, business_id: str, latest: int) -> list[Outcome]:
        """Load, and make ready what nobody is going to finish."""
        entity = await self.algorithm.entities.load(self.algorithm.entities.key(business_id))
        left = [*entity.pending_of(self.batch.finished or ()), *entity.pending_until(latest)]
        entity = await self.algorithm.make_ready(entity, {key: self.new_id() for key in left})
        return [self._given_out(business_id, key, self._entry(entity, key)) for key in left]

    async def _handle(
        self, entity: Entity, delivery: Delivery, attempts: dict[IdKey, str], *, stopped: bool
    ) -> tuple[Entity, Delivery]:
        """Return the entity with what a delivery did, and what became of it."""
        if isinstance(delivery, Outcome):
            return entity, delivery
        known = await self.algorithm.known_elsewhere(entity, delivery)
        if known is not None:
            return entity, known
        key, handler = delivery.key, self.algorithm.handler
        attempt = attempts.get(key) or self.new_id()
        if key not in entity.outbox:
            if stopped:
                return entity, refused(handler, delivery, Reason.HELD_BACK, HELD_BACK)
            changed = self.algorithm.invoke(entity, delivery, self.batch.batch_id, attempt)
            if isinstance(changed, Outcome):
                return entity, changed
            entity = changed
        if not is_copy(delivery, entity.outbox[key].fingerprint):
            return entity, id_reused(handler, delivery)
        attempts[key] = attempt
        return entity, delivery

    def _outcomes(self, entity: Entity, ends: Sequence[Delivery], delivered: set[IdKey]) -> list[Outcome]:
        """Return what became of deliveries, now that all of it is stored: the first of each message has its outputs."""
        outcomes = []
        for end in ends:
            if isinstance(end, Prepared):
                entry, is_first = self._entry(entity, end.key), end.key not in delivered
                delivered.add(end.key)
                is_ours = entry.batch is not None and entry.batch == self.batch.batch_id
                status = Status.PROCESSED if is_first and is_ours else Status.DUPLICATE
                outputs = self.algorithm.outputs(entry) if is_first else ()
                outcomes.append(
                    concluded(self.algorithm.handler, end, status, replace(entry, outputs=outputs))
                )
            else:
                outcomes.append(end)
        return outcomes

    def _given_out(self, business_id: str, key: IdKey, entry: Entry) -> Outcome:
        return Outcome(
            Envelope(id_text(key), entry.type, ""),
            self.algorithm.handler.name,
            business_id,
            Status.DUPLICATE,
            version=entry.version,
            outputs=self.algorithm.outputs(entry),
        )

    @property
    def _ours(self) -> Collection[str | None]:
        """The batches whose entries this one may finish; None stands for single messages."""
        return {None, self.batch.batch_id, *(self.batch.finished or ())}

    def _entry(self, entity: Entity, key: IdKey) -> Entry:
        if key not in entity.outbox:
            raise ConcurrencyConflictError(entity.key, "its message was finished since it was read")
        return entity.outbox[key]

    def _storable(self, delivery: Delivery) -> Delivery:
        if isinstance(delivery, Outcome):
            return delivery
        return self.algorithm.entities.refusal(delivery) or delivery
