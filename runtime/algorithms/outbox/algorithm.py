"""The steps that all algorithms with an outbox share: load, check, invoke, store, publish, finish.

One conditional write changes the state of an entity and adds an outbox entry with the outputs of each message. Then the
outputs are published, and the message is finished. The algorithms differ in how they recognise a finished message.

A batch publishes by committing its outcomes, so it takes two passes: `process` stores entries, and `finish` runs after
the commit. If the first pass finished messages, a restarted task would find them finished and have nothing to publish.
An entry belongs to its batch until that is published or abandoned. Others may publish its outputs again, but not finish
it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from eventstore import ConcurrencyConflictError, InvalidKeyError, Table
from eventstore.keys import escape
from handlers import Context
from handlers.app import HandlerDefinition
from runtime.algorithms.algorithm import (
    AT_ONCE,
    NewId,
    Publish,
    failure_of,
    fresh_id,
    publish_all,
    settle,
)
from runtime.algorithms.outbox.entity import Entities, Entity, Entry
from runtime.algorithms.refusals import Refusals, decided_before, has_stream
from runtime.clock import Clock, cut_off, system_clock
from runtime.errors import UsageError
from runtime.ledger.batch import FORGOTTEN, HELD_BACK, NOTHING, BatchContext, BatchKey, OpenBatches, Seen
from runtime.messages.envelope import Envelope, IdKey, id_text
from runtime.messages.outcome import Outcome, Output, Reason, Status, dead_letter, outputs_of
from runtime.messages.parsing import Deliveries, Delivery, Prepared, is_copy
from runtime.namesakes import is_from_outside
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions.readable import read_state
from runtime.versions.stream import is_key


@dataclass(kw_only=True, eq=False, repr=False)
class OutboxAlgorithm(ABC):
    """Processes the messages of one handler, one entity at a time."""

    name: str  # recorded in each entity
    table: Table
    handler: HandlerDefinition
    clock: Clock = system_clock
    new_id: NewId = fresh_id  # identifies an attempt at a message
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    batch: BatchContext = field(default_factory=BatchContext)
    entities: Entities = field(init=False)

    def __post_init__(self) -> None:
        self.retries = self.retries.beside(*self.tables())
        self.entities = Entities(self.table, self.handler, self.name, self.retries)

    async def process(
        self, business_id: str, deliveries: Sequence[Delivery], seen: Seen = NOTHING
    ) -> list[Outcome]:
        """Handle the deliveries of one entity in order, and store the results: the first pass. Return their outcomes.

        `seen`: the decisions on earlier deliveries of the entity. Costs one read and one write, plus the lookups in the
        de-duplication store or token store, which are per message. Raises `RetriesExhaustedError`.
        """
        letters = deliveries.letters if isinstance(deliveries, Deliveries) else None
        deliveries = [self.storable(delivery) for delivery in deliveries]
        if not is_key(self.entities.key(business_id)):
            return [delivery for delivery in deliveries if isinstance(delivery, Outcome)]
        outcomes: list[Outcome] = []
        while waiting := deliveries[len(outcomes) :]:
            numbers = None if letters is None else letters[len(outcomes) :]
            attempt = partial(self.attempt, business_id, waiting, seen, numbers)
            _, decided = await until_undisturbed(self.retries, attempt)
            outcomes += decided
            seen = seen.after(decided)
        return outcomes

    def storable(self, delivery: Delivery) -> Delivery:
        """Return the delivery, or a dead letter if its business id is too long for a key."""
        if not isinstance(delivery, Outcome):
            try:
                escape(self.entities.key(delivery.business_id))
            except InvalidKeyError as error:
                return self.refused(delivery, Reason.KEY_TOO_LONG, str(error))
        return delivery

    async def attempt(
        self,
        business_id: str,
        deliveries: Sequence[Delivery],
        seen: Seen = NOTHING,
        letters: Sequence[int] | None = None,
    ) -> tuple[Entity, list[Outcome]]:
        """Load the entity, handle deliveries, and store it once. Stops early if a write can take no more dead letters.

        `letters`: in a redrive, the numbers of the dead letters that are delivered. Returns the stored entity and the
        outcomes of the handled deliveries.
        """
        loaded = entity = await self.entities.load(self.entities.key(business_id))
        refusals = Refusals(entity.letters, self.batch, letters)
        attempts: dict[IdKey, str] = {}
        ends: list[Delivery] = []
        is_stopped = self.batch.stops_streams and seen.dead_letter
        refused_at: int | None = None
        for position, delivery in enumerate(deliveries):
            before = entity
            entity, end = await self.handle(
                entity, position, delivery, attempts, refusals, is_stopped=is_stopped
            )
            ends.append(end)
            if isinstance(end, Outcome) and end.is_dead_letter:
                refused_at = refused_at or max(self.clock(), entity.last_now)
                refusals.record(position, end, delivery, version=entity.version, now=refused_at)
                is_stopped = self.batch.stops_streams
            elif isinstance(delivery, Prepared) and (entity is not before or self.batch.is_redrive):
                refusals.processed(position, delivery.key, delivery.fingerprint)
            if refusals.is_full:
                break
        new = entity.outbox.keys() - loaded.outbox.keys()
        entity = entity.with_refusals(refusals, len(ends))
        if entity is not loaded:
            entity = await self.entities.store(entity)
        entity = await self.make_ready(entity, attempts)
        return entity, self._outcomes(entity, ends, set(seen.delivered), new)

    async def handle(
        self,
        entity: Entity,
        position: int,
        delivery: Delivery,
        attempts: dict[IdKey, str],
        refusals: Refusals,
        *,
        is_stopped: bool,
    ) -> tuple[Entity, Delivery]:
        """Handle a delivery. Return the entity, and an outcome, or the delivery itself if the entity has its entry."""
        forgotten = self._after_forgetting(entity, delivery)
        if forgotten is not None:
            return entity, forgotten
        if isinstance(delivery, Outcome):
            return entity, delivery
        known = refusals.refused_by_redrive(position, delivery)
        # Must follow the load: an earlier lookup could miss a message that another attempt is finishing.
        known = known or await self.known_elsewhere(entity, delivery)
        if known is not None:
            return entity, decided_before(refusals, position, delivery, known)
        key = delivery.key
        attempt = attempts.get(key) or self.new_id()
        if key not in entity.outbox:
            refusal = refusals.refusal(position, delivery)
            if refusal is not None:
                return entity, refusal
            if is_stopped:
                return entity, self.refused(delivery, Reason.HELD_BACK, HELD_BACK)
            changed = self.invoke(entity, delivery, attempt)
            if isinstance(changed, Outcome):
                return entity, changed
            entity = changed
        if not is_copy(delivery, entity.outbox[key].fingerprint):
            return entity, decided_before(refusals, position, delivery, self.id_reused(delivery))
        attempts[key] = attempt
        return entity, delivery

    def invoke(self, entity: Entity, message: Prepared, attempt: str) -> Entity | Outcome:
        """Call the handler. Return the entity with the new state and entry, or a dead letter."""
        handler, envelope = self.handler, message.envelope
        now, version = max(self.clock(), entity.last_now), entity.version + 1
        before = handler.codec.upcast(entity.state, entity.schema)
        context = Context(
            handler.name,
            message.business_id,
            envelope.message_id,
            now,
            envelope.headers,
            draw_key=handler.draw_key,
            room=self.batch.limits.room,
        )
        state = read_state(handler.codec, before, f"{handler.name}-{message.business_id}")
        method = message.route.revisions[message.route.newest]

        def call() -> bytes:
            values = list(state.__dict__.values())
            returned = method(state, message.message, context)
            return settle(handler, method, state, values, before, returned, context)[1]

        try:
            after = handler.interceptor.call(call, lambda: context)
        except BaseException as error:
            if is_from_outside(error):
                raise
            failed = failure_of(context.exceeded or error)
            return self.refused(message, failed.reason, str(failed))
        if context.documents:
            raise UsageError(
                f"{handler.name} stores documents (store_document), which an outbox cannot refer to: process its "
                "messages with the state-based algorithm."
            )
        outputs = outputs_of(context.published, version, now)
        entry = Entry(message.fingerprint, now, version, outputs, None, envelope.type, self.batch.key)
        changed = entity.with_entry(message.key, entry)
        changed = replace(changed, state=after, schema=handler.codec.version, version=version, last_now=now)
        return self.if_it_fits(changed, message)

    def if_it_fits(self, entity: Entity, message: Prepared) -> Entity | Outcome:
        """Return the entity, or a dead letter for the message that makes it too large to store."""
        if entity.too_large:
            return self.refused(message, Reason.STATE_TOO_LARGE, entity.too_large)
        return entity

    def concluded(
        self, message: Prepared, status: Status, version: int | None = None, outputs: tuple[Output, ...] = ()
    ) -> Outcome:
        """Return the outcome of a message that was handled in this delivery or an earlier one."""
        return Outcome(
            message.envelope, self.handler.name, message.business_id, status, None, None, version, outputs
        )

    def refused(self, message: Prepared, reason: Reason, problem: str) -> Outcome:
        """Return a dead letter."""
        name, length = self.handler.name, self.batch.limits.error
        return dead_letter(message.envelope, reason, problem, name, message.business_id, length=length)

    def id_reused(self, message: Prepared) -> Outcome:
        """Return the dead letter for a message whose id belongs to another message."""
        problem = f"Another message with the id {message.envelope.message_id} was processed."
        return self.refused(message, Reason.ID_REUSED, problem)

    async def finish(self, business_id: str, message_ids: Collection[IdKey]) -> None:
        """Finish messages of one entity after the commit of their outcomes: the second pass. Idempotent.

        Skips entries of other open batches. Costs two requests, or one if nothing is left, plus those to the
        de-duplication store or token store.
        """

        async def finish_once() -> None:
            entity = await self.entities.load(self.entities.key(business_id))
            published = [key for key in entity.pending_of(self._may_finish) if key in message_ids]
            if published:
                await self.mark_finished(entity, published)

        await until_undisturbed(self.retries, finish_once)

    async def unfinished(self, business_id: str, latest: int) -> list[Outcome]:
        """Return messages of one entity whose worker or batch died, as duplicates with their outputs.

        These are single messages handled up to `latest` (microseconds), and messages of abandoned batches. Commit these
        outcomes to publish them, then call `finish`.
        """
        key = self.entities.key(business_id)
        entity, left = await until_undisturbed(self.retries, partial(self.make_unfinished_ready, key, latest))
        outcomes, name = [], self.handler.name
        for id_ in left:
            entry, envelope = entity.outbox[id_], Envelope(id_text(id_), entity.outbox[id_].type, "")
            found = Outcome(envelope, name, business_id, Status.DUPLICATE, version=entry.version)
            outcomes.append(found._replace(outputs=entry.to_publish))
        return outcomes

    async def make_unfinished_ready(self, key: str, latest: int) -> tuple[Entity, list[IdKey]]:
        """Load an entity, and prepare the outputs of its abandoned messages. Return it and the ids of the messages."""
        entity = await self.entities.load(key)
        single = entity.pending_of(lambda batch: batch is None)
        old = [id_ for id_ in single if entity.outbox[id_].now <= latest]
        left = [*entity.pending_of(self._is_over), *old]
        entity = await self.make_ready(entity, {id_: self.new_id() for id_ in left})
        for id_ in left:
            _entry(entity, id_)
        return entity, left

    def _after_forgetting(self, entity: Entity, delivery: Delivery) -> Outcome | None:
        """Return the outcome of a delivery that the tombstone of an entity rejects, or `None`."""
        tombstone = entity.tombstone
        if tombstone is None or (isinstance(delivery, Prepared) and delivery.key in entity.outbox):
            return None
        if tombstone.refuses:
            handler = self.handler.name
            return dead_letter(delivery.envelope, Reason.FORGOTTEN, FORGOTTEN, handler, delivery.business_id)
        if isinstance(delivery, Outcome) or self.batch.late != "refuse":
            return None
        enqueued_at = delivery.envelope.enqueued_at
        if enqueued_at is None or enqueued_at <= tombstone.at:
            return self.concluded(delivery, Status.TOO_LATE)
        return None

    def _outcomes(
        self, entity: Entity, ends: Sequence[Delivery], delivered: set[IdKey], new: Collection[IdKey]
    ) -> list[Outcome]:
        """Return the final outcomes. Only the first delivery of each message has outputs."""
        outcomes = []
        for end in ends:
            if isinstance(end, Outcome):
                outcomes.append(end)
                continue
            entry, is_first = _entry(entity, end.key), end.key not in delivered
            delivered.add(end.key)
            # A retry finds the entries that the previous attempt stored for the same batch.
            is_ours = end.key in new or (entry.batch is not None and entry.batch == self.batch.key)
            status = Status.PROCESSED if is_first and is_ours else Status.DUPLICATE
            outputs = entry.to_publish if is_first else ()
            outcomes.append(self.concluded(end, status, entry.version, outputs))
        return outcomes

    def _may_finish(self, batch: BatchKey | None) -> bool:
        """Return whether this batch may finish entries of `batch`, where `None` means single messages."""
        return batch is None or batch == self.batch.key or self._is_over(batch)

    def _is_over(self, batch: BatchKey | None) -> bool:
        """Return whether a batch was published or abandoned, so that it publishes no more entries."""
        known = self.batch.open_batches
        return batch is not None and known is not None and known.is_finished(*batch)

    # The algorithms override the methods below.

    def tables(self) -> Sequence[Table]:
        """Return the tables that the algorithm uses."""
        return [self.table]

    async def known_elsewhere(self, entity: Entity, message: Prepared) -> Outcome | None:
        """Return the outcome of a message that is recorded as finished outside its entity, or `None`."""
        return None

    async def make_ready(self, entity: Entity, attempts: Mapping[IdKey, str]) -> Entity:
        """Do the work that must precede publishing, and return the updated entity.

        `attempts`: the id of this attempt for each message.
        """
        return entity

    @abstractmethod
    async def mark_finished(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Mark messages as finished after their outputs were published. Return the updated entity."""

    async def forget(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Remove the entries of messages, if present. Return the updated entity."""
        return await self.entities.update(entity, lambda current: current.without(message_ids))

    async def forget_leftover(self, entity: Entity, message: Prepared) -> None:
        """Remove the entry that a crash left of a message finished elsewhere."""
        await self.forget(entity, [message.key])

    async def evict_from(self, key: str, latest: int, *, dry_run: bool = False) -> int:
        """Forget the messages of an entity that were processed up to `latest`, in microseconds. Return their number."""
        return 0


@dataclass(kw_only=True, eq=False, repr=False)
class OutboxOneByOne:
    """Processes single messages with an outbox algorithm, and publishes their outputs."""

    algorithm: OutboxAlgorithm
    publish: Publish

    async def process(self, message: Delivery, *, redrive_beside: OpenBatches | None = None) -> Outcome:
        """Handle a message as a batch of one, publish its outputs, finish it, and return its outcome.

        See `Algorithm.process`. A dead letter is durable on return.
        """
        algorithm = self.algorithm
        message = algorithm.storable(message)
        if isinstance(message, Outcome) and not has_stream(message):
            return message
        if redrive_beside is not None:
            algorithm = replace(algorithm, batch=algorithm.batch.redriving(redrive_beside))
        return await until_undisturbed(algorithm.retries, partial(self.attempt, algorithm, message))

    async def attempt(self, algorithm: OutboxAlgorithm, message: Delivery) -> Outcome:
        """Make one attempt at a message."""
        entity, (outcome,) = await algorithm.attempt(message.business_id or "", [message])
        if isinstance(message, Outcome) or outcome.is_dead_letter:
            await publish_all(algorithm.table, self.publish, ())
        elif outcome.version is None:  # known elsewhere
            await algorithm.forget_leftover(entity, message)
        else:
            await self.publish_outputs(entity, [message.key])
            if entity.outbox[message.key].batch is None:
                await algorithm.mark_finished(entity, [message.key])
        return outcome

    async def publish_outputs(self, entity: Entity, message_ids: Collection[IdKey]) -> None:
        """Publish the unpublished outputs of messages, after making the commit durable."""
        outputs = [output for key in message_ids for output in entity.outbox[key].to_publish]
        await publish_all(self.algorithm.table, self.publish, outputs)

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        """Publish and finish messages of crashed workers. Return their number.

        Costs one request for each 1,000 entities, and one for each entity with unfinished messages.
        """
        latest, algorithm = cut_off(self.algorithm.clock, older_than), self.algorithm
        sweep, keys = partial(self._sweep, latest=latest), algorithm.entities.unfinished()
        return sum([await until_undisturbed(algorithm.retries, partial(sweep, key)) async for key in keys])

    async def _sweep(self, key: str, latest: int) -> int:
        entity, left = await self.algorithm.make_unfinished_ready(key, latest)
        if left:
            await self.publish_outputs(entity, left)
            await self.algorithm.mark_finished(entity, left)
        return len(left)

    async def evict(self, older_than: timedelta, *, dry_run: bool = False) -> int:
        """Forget the ids of messages processed more than `older_than` ago. Return their number.

        Costs one request for each 1,000 entities, one for each entity, and one more for each entity with old ids.
        """
        latest, algorithm = cut_off(self.algorithm.clock, older_than), self.algorithm
        evict, count = partial(algorithm.evict_from, latest=latest, dry_run=dry_run), 0
        async for row in algorithm.entities.rows():
            count += await until_undisturbed(algorithm.retries, partial(evict, row.partition_key))
        return count


def _entry(entity: Entity, key: IdKey) -> Entry:
    if key not in entity.outbox:
        raise ConcurrencyConflictError(entity.key, "the message was finished meanwhile")
    return entity.outbox[key]
