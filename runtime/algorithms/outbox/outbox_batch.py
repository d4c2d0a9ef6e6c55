"""An outbox in batches, in two passes: outputs are published by committing the outcomes of a batch, not before.

The first pass handles the ordered messages of an entity and stores their outputs in its outbox, together with the batch
that they belong to. Then the batch commits its outcomes, which publishes them. Only after that the second pass finishes
the messages: marks them, adds them to the de-duplication store, or deletes their tokens. Done in the first pass, this
would lose outputs: a task that dies afterwards runs again, finds its messages finished, and has nothing to publish.

An entry belongs to its batch until that one is published or abandoned. Other batches, single messages and sweepers
may publish its outputs once more, but leave it as it is: a batch that is resumed gives what it would have given.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from eventstore import ConcurrencyConflictError
from runtime.algorithms.outbox.algorithm import OutboxAlgorithm
from runtime.algorithms.outbox.entity import Entity
from runtime.algorithms.outbox.entry import Entry
from runtime.algorithms.outbox.invoking import after_forgetting, concluded, id_reused, refused
from runtime.algorithms.refusals import Refusals, decided_before, has_stream
from runtime.batches.context import HELD_BACK, BatchContext
from runtime.batches.open_batches import BatchKey
from runtime.batches.seen import NOTHING, Seen
from runtime.messages.copies import is_copy
from runtime.messages.deliveries import Deliveries, Delivery, Prepared
from runtime.messages.envelope import Envelope
from runtime.messages.message_ids import IdKey, id_text
from runtime.messages.outcome import Outcome, Reason, Status
from runtime.retries import until_undisturbed


@dataclass(frozen=True, slots=True)
class OutboxBatch:
    """Processes the messages of a batch with an algorithm that has an outbox, for one handler."""

    algorithm: OutboxAlgorithm
    batch: BatchContext

    async def process(
        self,
        business_id: str,
        deliveries: Sequence[Delivery],
        seen: Seen = NOTHING,
    ) -> list[Outcome]:
        """Handle the deliveries of one entity, in their order, store, and return an outcome for each: the first pass.

        `seen` is what deliveries before these have decided. The entity is read once and written once, whatever the
        number of messages; the de-duplication store or the tokens are asked for each message. Raises
        `RetriesExhaustedError` after too many lost races in a row.
        """
        letters = deliveries.letters if isinstance(deliveries, Deliveries) else None
        deliveries = [self._storable(delivery) for delivery in deliveries]
        if any(isinstance(each, Outcome) and not has_stream(each) for each in deliveries):
            return [delivery for delivery in deliveries if isinstance(delivery, Outcome)]
        outcomes: list[Outcome] = []
        while waiting := deliveries[len(outcomes) :]:
            numbers = None if letters is None else letters[len(outcomes) :]
            attempt = partial(self.attempt, business_id, waiting, seen, numbers)
            decided = await until_undisturbed(self.algorithm.retries, attempt)
            outcomes += decided
            seen = seen.after(decided)
        return outcomes

    async def attempt(
        self,
        business_id: str,
        deliveries: Sequence[Delivery],
        seen: Seen,
        letters: Sequence[int] | None = None,
    ) -> list[Outcome]:
        """Load, check and invoke for each message, store, make ready; until a write takes no more letters.

        In a redrive, `letters` are the numbers of the letters that the deliveries are.
        """
        loaded = entity = await self._load(business_id)
        refusals = Refusals(entity.letters, self.batch, letters)
        attempts: dict[IdKey, str] = {}
        ends: list[Delivery] = []
        dead_letter = seen.dead_letter
        now = max(self.algorithm.clock(), entity.last_now)
        for position, delivery in enumerate(deliveries):
            stopped = dead_letter and self.batch.stops_streams
            before = entity
            entity, end = await self._handle(entity, position, delivery, attempts, refusals, stopped=stopped)
            ends.append(end)
            if isinstance(end, Outcome) and end.is_dead_letter:
                refusals.record(position, end, delivery, version=entity.version, now=now)
                dead_letter = True
            elif isinstance(delivery, Prepared) and (entity is not before or self.batch.is_redrive):
                refusals.processed(position, delivery.key, delivery.fingerprint)
            if refusals.is_full:
                break
        entity = entity.with_refusals(refusals, len(ends))
        if entity is not loaded:
            entity = await self.algorithm.entities.store(entity)
        entity = await self.algorithm.make_ready(entity, attempts)
        return self._outcomes(entity, ends, set(seen.delivered))

    async def finish(self, business_id: str, message_ids: Collection[IdKey]) -> None:
        """Finish messages of one entity whose outcomes are committed: the second pass. Repeating it changes nothing.

        Entries of other batches that are neither published nor abandoned are left alone. Costs two requests, one when
        nothing is left, and what the de-duplication store or the tokens take.
        """
        await until_undisturbed(self.algorithm.retries, partial(self.finish_once, business_id, message_ids))

    async def finish_once(self, business_id: str, message_ids: Collection[IdKey]) -> None:
        """Load, finish."""
        entity = await self._load(business_id)
        published = [key for key in entity.pending_of(self._may_finish) if key in message_ids]
        if published:
            await self.algorithm.finish(entity, published)

    async def unfinished(self, business_id: str, latest: int) -> list[Outcome]:
        """Return the messages of an entity whose worker or batch died for good, as duplicates with their outputs.

        These are single messages that were handled at a time, in microseconds, or before, and messages of batches
        that were abandoned. Committing these outcomes publishes them; after that they are to be finished.
        """
        attempt = partial(self.unfinished_now, business_id, latest)
        return await until_undisturbed(self.algorithm.retries, attempt)

    async def unfinished_now(self, business_id: str, latest: int) -> list[Outcome]:
        """Load, make ready."""
        entity = await self._load(business_id)
        left = [*entity.pending_of(self._is_finished), *entity.pending_until(latest)]
        entity = await self.algorithm.make_ready(entity, {key: self.algorithm.new_id() for key in left})
        return [self._as_duplicate(business_id, key, _entry(entity, key)) for key in left]

    async def _load(self, business_id: str) -> Entity:
        entities = self.algorithm.entities
        return await entities.load(entities.key(business_id))

    async def _handle(
        self,
        entity: Entity,
        position: int,
        delivery: Delivery,
        attempts: dict[IdKey, str],
        refusals: Refusals,
        *,
        stopped: bool,
    ) -> tuple[Entity, Delivery]:
        """Return the entity with what a delivery did, and its outcome, or the delivery if it is in the entity now."""
        forgotten = after_forgetting(self.algorithm.handler, entity, delivery, self.batch.late)
        if forgotten is not None:
            return entity, forgotten
        if isinstance(delivery, Outcome):
            return entity, delivery
        known = refusals.refused_by_redrive(position, delivery)
        known = known or await self.algorithm.known_elsewhere(entity, delivery)
        if known is not None:
            return entity, decided_before(refusals, position, delivery, known)
        key, handler = delivery.key, self.algorithm.handler
        attempt = attempts.get(key) or self.algorithm.new_id()
        if key not in entity.outbox:
            refusal = refusals.refusal(position, delivery)
            if refusal is not None:
                return entity, refusal
            if stopped:
                return entity, refused(handler, delivery, Reason.HELD_BACK, HELD_BACK)
            changed = self.algorithm.invoke(entity, delivery, attempt, self.batch.key)
            if isinstance(changed, Outcome):
                return entity, changed
            entity = changed
        if not is_copy(delivery, entity.outbox[key].fingerprint):
            return entity, decided_before(refusals, position, delivery, id_reused(handler, delivery))
        attempts[key] = attempt
        return entity, delivery

    def _outcomes(self, entity: Entity, ends: Sequence[Delivery], delivered: set[IdKey]) -> list[Outcome]:
        """Return the outcomes of deliveries, now that all is stored: the first of each message has its outputs."""
        outcomes = []
        for end in ends:
            if isinstance(end, Outcome):
                outcomes.append(end)
                continue
            entry, is_first = _entry(entity, end.key), end.key not in delivered
            delivered.add(end.key)
            is_ours = entry.batch is not None and entry.batch == self.batch.key
            status = Status.PROCESSED if is_first and is_ours else Status.DUPLICATE
            outputs = entry.to_publish if is_first else ()
            outcomes.append(concluded(self.algorithm.handler, end, status, entry.version, outputs))
        return outcomes

    def _as_duplicate(self, business_id: str, key: IdKey, entry: Entry) -> Outcome:
        return Outcome(
            Envelope(id_text(key), entry.type, ""),
            self.algorithm.handler.name,
            business_id,
            Status.DUPLICATE,
            version=entry.version,
            outputs=entry.to_publish,
        )

    def _may_finish(self, batch: BatchKey | None) -> bool:
        """Say whether this batch may finish the entries of a batch; None stands for single messages."""
        return batch is None or batch == self.batch.key or self._is_finished(batch)

    def _is_finished(self, batch: BatchKey | None) -> bool:
        """Say whether a batch will publish no more of its entries: it was published or abandoned."""
        known = self.batch.open_batches
        return batch is not None and known is not None and known.is_finished(*batch)

    def _storable(self, delivery: Delivery) -> Delivery:
        if isinstance(delivery, Outcome):
            return delivery
        return self.algorithm.entities.refusal(delivery) or delivery


def _entry(entity: Entity, key: IdKey) -> Entry:
    if key not in entity.outbox:
        raise ConcurrencyConflictError(entity.key, "its message was finished since it was read")
    return entity.outbox[key]
