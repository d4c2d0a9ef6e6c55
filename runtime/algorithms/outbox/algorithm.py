"""The algorithms with an outbox: alone, with a deduplication store, and with tokens.

The algorithms share the steps load, check, invoke, store, publish, finish.

One conditional write changes the state of an entity and adds an outbox entry with the outputs of each message. Then the
outputs are published, and the message is finished. The algorithms differ in how they recognise a finished message.

A batch publishes by committing its outcomes, so it takes two passes: `process` stores entries, and `finish` runs after
the commit. If the first pass finished messages, a restarted task would find them finished and have nothing to publish.
An entry belongs to its batch until the batch is published or abandoned. Until then, other batches may publish the
outputs of the entry again, but must not finish its message.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import ClassVar

from eventstore import ConcurrencyConflictError, InvalidKeyError, PayloadTooLargeError, Table
from eventstore.keys import escape
from handlers import Context
from handlers.app import HandlerDefinition, settle
from runtime.algorithms import algorithm as base
from runtime.algorithms.algorithm import AT_ONCE, Publish, Refusals, decided_before, has_stream, publish_all
from runtime.algorithms.outbox.entity import Entities, Entity, Entry
from runtime.algorithms.outbox.stores import NEWEST, DeduplicationStore, EntryTokens, TokenStore, token_of
from runtime.clock import Clock, cut_off, system_clock
from runtime.errors import UsageError
from runtime.ledger.batch import FORGOTTEN, HELD_BACK, NOTHING, BatchContext, BatchKey, OpenBatches, Seen
from runtime.messages.envelope import Envelope, Headers, IdKey, id_text, with_trace, without_trace
from runtime.messages.outcome import Outcome, Output, Reason, Status, dead_letter, outputs_of
from runtime.messages.parsing import Deliveries, Delivery, Prepared, is_copy
from runtime.namesakes import is_from_outside
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions.properties import one_of_many
from runtime.versions.readable import read_state
from runtime.versions.stream import is_key


@dataclass(kw_only=True, eq=False, repr=False)
class OutboxAlgorithm(ABC):
    """Processes the messages of one handler, one entity at a time."""

    growth: ClassVar[int] = 0  # how many bytes an entry may grow after it was added

    name: str  # recorded in each entity
    table: Table
    handler: HandlerDefinition
    clock: Clock = system_clock
    new_id: base.NewId = base.fresh_id  # identifies an attempt at a message
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    batch: BatchContext = field(default_factory=BatchContext)
    entities: Entities = field(init=False)

    def __post_init__(self) -> None:
        self.retries = self.retries.beside(*self.tables())
        self.entities = Entities(self.table, self.handler, self.name, self.retries)

    async def process(
        self, business_id: str, deliveries: Sequence[Delivery], seen: Seen = NOTHING
    ) -> list[Outcome]:
        """First pass: handle deliveries of one entity in order, and store the entity. Return an outcome for each."""
        letters = deliveries.letters if isinstance(deliveries, Deliveries) else None
        deliveries = [self.storable(delivery) for delivery in deliveries]
        if not is_key(self.entities.key(business_id)):
            return [delivery for delivery in deliveries if isinstance(delivery, Outcome)]
        outcomes: list[Outcome] = []
        most = len(deliveries)
        while waiting := deliveries[len(outcomes) : len(outcomes) + most]:
            numbers = None if letters is None else letters[len(outcomes) :]
            attempt = partial(self.attempt, business_id, waiting, seen, numbers)
            try:
                _, decided = await until_undisturbed(self.retries, attempt)
            except PayloadTooLargeError:
                # Dead letters may be in too many rows. Nothing was stored.
                most = len(waiting) // 2
                if most == 0:
                    raise
                continue
            outcomes += decided
            most *= 2
            seen = seen.after(decided)
        return outcomes

    def storable(self, delivery: Delivery) -> Delivery:
        """Return the delivery or, if its business id is too long for a key, an outcome that rejects it."""
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
        """Load an entity, handle deliveries, and store the entity once. Return the entity and the outcomes.

        Stops early, with fewer outcomes, if no more dead letters fit into the transaction. `letters`: in a redrive, the
        number of each delivery's dead letter.
        """
        loaded = entity = await self.entities.load(self.entities.key(business_id))
        refusals = Refusals(entity.letters, entity.waiting, self.batch, letters)
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
        """Handle a delivery. Return the updated entity and the outcome.

        If the message is now in the outbox, `delivery` is returned instead of an outcome: once the entity is stored,
        the caller makes the outcome from the outbox entry. `position` is the index of the delivery, `refusals` holds
        the entity's dead letters, and `attempts` collects an attempt id for each message in the outbox. If
        `is_stopped`, new messages become dead letters (`held_back`).
        """
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
        """Call the handler in attempt `attempt`. Return the entity with its new state and entry, or a dead letter."""
        handler, envelope = self.handler, message.envelope
        now, version = max(self.clock(), entity.last_now), entity.version + 1
        before = handler.codec.upcast(entity.state, entity.schema)
        context = Context(
            handler.name,
            message.business_id,
            envelope.message_id,
            now,
            without_trace(envelope.headers),
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
            failed = base.failure_of(context.exceeded or error)
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
        """Return the entity or, if the message made it too large to store, a dead letter for the message."""
        if problem := entity.too_large(self.growth):
            return self.refused(message, Reason.STATE_TOO_LARGE, problem)
        return entity

    def concluded(
        self, message: Prepared, status: Status, version: int | None = None, outputs: tuple[Output, ...] = ()
    ) -> Outcome:
        """Return an outcome other than a dead letter. `version`: `None` if the entity has no entry for the message."""
        outputs = _traced(outputs, message.envelope.headers)
        return Outcome(
            message.envelope, self.handler.name, message.business_id, status, None, None, version, outputs
        )

    def refused(self, message: Prepared, reason: Reason, problem: str) -> Outcome:
        name, length = self.handler.name, self.batch.limits.error
        return dead_letter(message.envelope, reason, problem, name, message.business_id, length=length)

    def id_reused(self, message: Prepared) -> Outcome:
        """Return the dead letter for a message whose id belongs to another message."""
        problem = f"Another message with the id {message.envelope.message_id} was processed."
        return self.refused(message, Reason.ID_REUSED, problem)

    async def finish(self, business_id: str, message_ids: Collection[IdKey]) -> None:
        """Mark messages of an entity as finished after the commit of their outcomes (second pass). Idempotent.

        Skips messages that belong to other open batches.
        """

        async def finish_once() -> None:
            entity = await self.entities.load(self.entities.key(business_id))
            published = [key for key in entity.pending_of(self._may_finish) if key in message_ids]
            if published:
                await self.mark_finished(entity, published)

        await until_undisturbed(self.retries, finish_once)

    async def unfinished(self, business_id: str, latest: int) -> list[Outcome]:
        """Return outcomes of an entity's messages that a crashed worker or an abandoned batch left unfinished.

        The caller commits the outcomes, then calls `finish`. Skips single messages handled after `latest`, in
        microseconds since 1970 UTC.
        """
        key = self.entities.key(business_id)
        entity, left = await until_undisturbed(self.retries, partial(self.make_unfinished_ready, key, latest))
        outcomes, name = [], self.handler.name
        for id_ in left:
            version, outputs = entity.outbox[id_].version, entity.outbox[id_].to_publish
            envelope = Envelope(id_text(id_), entity.outbox[id_].type, "")
            found = Outcome(envelope, name, business_id, Status.DUPLICATE, version=version, outputs=outputs)
            outcomes.append(found)
        return outcomes

    async def make_unfinished_ready(self, key: str, latest: int) -> tuple[Entity, list[IdKey]]:
        """Call `make_ready` for the messages that `unfinished` is about. Return the entity and the messages' ids."""
        entity = await self.entities.load(key)
        single = entity.pending_of(lambda batch: batch is None)
        old = [id_ for id_ in single if entity.outbox[id_].now <= latest]
        left = [*entity.pending_of(self._is_over), *old]
        entity = await self.make_ready(entity, {id_: self.new_id() for id_ in left})
        for id_ in left:
            _entry(entity, id_)
        return entity, left

    def _after_forgetting(self, entity: Entity, delivery: Delivery) -> Outcome | None:
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
            made_by = entry.batch if status is Status.DUPLICATE else None
            outcome = self.concluded(end, status, entry.version, outputs)
            outcomes.append(outcome._replace(made_by=made_by))
        return outcomes

    def _may_finish(self, batch: BatchKey | None) -> bool:
        """Return whether this batch may finish entries of `batch`, where `None` means single messages."""
        return batch is None or batch == self.batch.key or self._is_over(batch)

    def _is_over(self, batch: BatchKey | None) -> bool:
        known = self.batch.open_batches
        return batch is not None and known is not None and known.is_finished(*batch)

    # The algorithms override the methods below.

    def tables(self) -> Sequence[Table]:
        return [self.table]

    async def known_elsewhere(self, entity: Entity, message: Prepared) -> Outcome | None:
        """Return the outcome of a message that is recorded as finished outside its entity, otherwise `None`."""
        return None

    async def make_ready(self, entity: Entity, attempts: Mapping[IdKey, str]) -> Entity:
        """Prepare the outputs of messages for publishing, for example create tokens. Return the updated entity.

        `attempts` maps the id of each message to the id of the current attempt at that message.
        """
        return entity

    @abstractmethod
    async def mark_finished(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Mark messages as finished after their outputs were published. Return the updated entity."""

    async def forget(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Remove the outbox entries of messages, if present. Return the updated entity."""
        return await self.entities.update(entity, lambda current: current.without(message_ids))

    async def forget_leftover(self, entity: Entity, message: Prepared) -> None:
        """Remove the outbox entry that a crash may have left for a message recorded as finished in another table."""
        await self.forget(entity, [message.key])

    async def evict_from(self, key: str, latest: int, *, dry_run: bool = False) -> int:
        """Delete the ids of messages that an entity processed up to `latest`, in microseconds. Return their number."""
        return 0


@dataclass(kw_only=True, eq=False, repr=False)
class OutboxOneByOne:
    """Processes single messages with an outbox algorithm, and publishes their outputs."""

    algorithm: OutboxAlgorithm
    publish: Publish

    async def process(self, message: Delivery, *, redrive_beside: OpenBatches | None = None) -> Outcome:
        """Handle a message as a batch of one, publish its outputs, finish it, and return its outcome."""
        algorithm = self.algorithm
        message = algorithm.storable(message)
        if isinstance(message, Outcome) and not has_stream(message):
            return message
        if redrive_beside is not None:
            algorithm = replace(algorithm, batch=algorithm.batch.redriving(redrive_beside))
        return await until_undisturbed(algorithm.retries, partial(self.attempt, algorithm, message))

    async def attempt(self, algorithm: OutboxAlgorithm, message: Delivery) -> Outcome:
        """Handle, publish and finish a message once: conflicts and timeouts are raised. Return its outcome."""
        entity, (outcome,) = await algorithm.attempt(message.business_id or "", [message])
        if isinstance(message, Outcome) or outcome.is_dead_letter:
            await publish_all(algorithm.table, self.publish, ())
        elif outcome.version is None:  # known elsewhere
            await algorithm.forget_leftover(entity, message)
        else:
            await self.publish_outputs(entity, [message.key], message.envelope.headers)
            if entity.outbox[message.key].batch is None:
                await algorithm.mark_finished(entity, [message.key])
        return outcome

    async def publish_outputs(self, entity: Entity, keys: Collection[IdKey], cause: Headers = None) -> None:
        """Make the commit durable, then publish the unpublished outputs of messages.

        The trace context in the headers `cause` is added to the outputs.
        """
        outputs = [output for key in keys for output in entity.outbox[key].to_publish]
        await publish_all(self.algorithm.table, self.publish, _traced(outputs, cause))

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        """Publish outputs of messages that crashed workers left unfinished. Finish these, and return their number."""
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
        """Forget ids of messages processed more than `older_than` ago. Return their number."""
        latest, algorithm = cut_off(self.algorithm.clock, older_than), self.algorithm
        evict, count = partial(algorithm.evict_from, latest=latest, dry_run=dry_run), 0
        async for row in algorithm.entities.rows():
            count += await until_undisturbed(algorithm.retries, partial(evict, row.partition_key))
        return count


def _traced(outputs: Sequence[Output], cause: Headers) -> tuple[Output, ...]:
    """Add the trace context of a message, which the outbox does not store, to the message's outputs."""
    return tuple(each._replace(headers=with_trace(each.headers, cause)) for each in outputs)


def _entry(entity: Entity, key: IdKey) -> Entry:
    if key not in entity.outbox:
        raise ConcurrencyConflictError(entity.key, "the message was finished meanwhile")
    return entity.outbox[key]


@dataclass(kw_only=True, eq=False, repr=False)
class Outbox(OutboxAlgorithm):
    """Keeps the ids of processed messages in the entity.

    A message with an entry is a duplicate: only its unpublished outputs are published. Because outputs are stored,
    handlers need not be deterministic. Copies delivered after `evict` forgot the id are processed again.

    After Masternak and Pobiega, "Improving outbox" (exactly-once.github.io), first listing. Costs three requests for a
    new message (two if it has no outputs), and one for a duplicate.
    """

    name: str = "outbox"

    def invoke(self, entity: Entity, message: Prepared, attempt: str) -> Entity | Outcome:
        """Call the handler as the base class does. A single message without outputs is finished at once."""
        changed = super().invoke(entity, message, attempt)
        if isinstance(changed, Outcome) or self.batch.batch_id or changed.outbox[message.key].outputs:
            return changed
        return changed.finished([message.key])

    async def mark_finished(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Remove the outputs of messages, but keep their ids. Costs one request."""
        return await self.entities.update(entity, lambda current: current.finished(message_ids))

    async def evict_from(self, key: str, latest: int, *, dry_run: bool = False) -> int:
        """Remove finished entries as the base class describes. Return their number. Costs two requests."""
        with one_of_many(self.entities.table, key):
            entity = await self.entities.load(key)
            if dry_run:
                return len(entity.outbox) - len(entity.without_old(latest).outbox)
            rest = await self.entities.update(entity, lambda current: current.without_old(latest))
            return sum(message_id not in rest.outbox for message_id in entity.outbox)
        return 0


Recipients = Callable[[str], Collection[str]]
"""Returns the handlers that take a message type. An output without recipients needs no token."""

_NO_TOKEN = "The message has no token: issue one before sending it (`consistent tokens`, `Processor.issue`)."  # noqa: S105 - a sentence


@dataclass(kw_only=True, eq=False, repr=False)
class TokenBased(OutboxAlgorithm):
    """Processes a message only if its token exists, then deletes the token. No ids are kept.

    A token must never exist again after its message has been published. So each attempt creates tokens under ids of its
    own, and one conditional write to the entity commits an attempt before any output is published. Each attempt
    registers its id in the entity before it creates tokens. So the tokens of lost attempts can be deleted when the
    message is finished. Tokens are created on condition that the incoming token exists. The incoming token is deleted
    before the tokens of lost attempts, so a slow attempt cannot create tokens later.

    Only the newest attempts may commit. If the ids of attempts fill the row, the next attempt deletes the tokens of
    older ones and drops their ids. Tokens that these create later remain, but no output carries them.

    After Masternak and Pobiega, "Token-based deduplication" and "Exactly-once intuition" (exactly-once.github.io).
    Costs seven requests for a new message (five if no handler takes its outputs), and two for a duplicate.
    """

    growth: ClassVar[int] = 35 * (NEWEST + 1)  # ids of attempts: further ones, and the committed one again

    name: str = "tokens"
    tokens: TokenStore
    recipients: Recipients

    def tables(self) -> Sequence[Table]:
        return [self.table, self.tokens.table]

    async def known_elsewhere(self, entity: Entity, message: Prepared) -> Outcome | None:
        """Return a dead letter if the message names no token, and a duplicate if the token is gone, otherwise `None`.

        Costs one request.
        """
        token = token_of(message.envelope, self.handler.name)
        if token is None:
            return self.refused(message, Reason.INVALID_ENVELOPE, _NO_TOKEN)
        if not await self.tokens.exists(token):
            return self.concluded(message, Status.DUPLICATE)
        entry = entity.outbox.get(message.key)
        # The message was issued twice. Delete the second token, or a copy could be processed with it later.
        if entry is not None and _tokens(entry).incoming != token:
            await self.table.barrier()
            await self.tokens.delete(token)
        return None

    async def forget_leftover(self, entity: Entity, message: Prepared) -> None:
        """Remove the outbox entry of a message whose token is gone, unless the entry was made with another token."""
        entry = entity.outbox.get(message.key)
        if entry is not None and _tokens(entry).incoming == token_of(message.envelope, self.handler.name):
            await super().forget_leftover(entity, message)

    def invoke(self, entity: Entity, message: Prepared, attempt: str) -> Entity | Outcome:
        """Call the handler as the base class does, and register this attempt in the new entry."""
        token = token_of(message.envelope, self.handler.name)
        changed = super().invoke(entity, message, attempt)
        if token is None or isinstance(changed, Outcome):
            return changed
        entry = changed.outbox[message.key]
        recipients = tuple(tuple(self.recipients(output.type)) for output in entry.outputs or ())
        tokens = EntryTokens(token, recipients).registered(attempt)
        return self.if_it_fits(changed.with_entry(message.key, replace(entry, tokens=tokens)), message)

    async def make_ready(self, entity: Entity, attempts: Mapping[IdKey, str]) -> Entity:
        """For each message without a committed attempt, register this attempt, create its tokens, and commit it.

        Raises `ConcurrencyConflictError` if the attempt is superseded.
        """
        attempts = dict(attempts)
        register = partial(self._register, attempts, entity.key)
        entity = await until_undisturbed(self.retries, register, first=partial(register, entity))
        undecided = {key: attempts[key] for key in _undecided(entity, attempts)}
        if undecided:
            await self.table.barrier()
        for message_id, attempt in undecided.items():
            tokens = _tokens(entity.outbox[message_id])
            await self.tokens.create(tokens.incoming, tokens.of_attempt(attempt))
        if undecided:
            await self.tokens.flush()
        entity = await self.entities.update(entity, partial(_committed, undecided))
        if _undecided(entity, undecided):
            raise ConcurrencyConflictError(entity.key, "later attempts superseded this one")
        return entity

    async def _register(self, attempts: dict[IdKey, str], key: str, entity: Entity | None = None) -> Entity:
        """Register attempts in an entity, after dropping superseded ones if the row is nearly full.

        Without an entity, loads it and draws new ids: one that was superseded must never be registered again, because
        its tokens may be deleted at any time.
        """
        is_retry, entity = entity is None, entity or await self.entities.load(key)
        undecided = {id_: _tokens(entity.outbox[id_]) for id_ in _undecided(entity, attempts)}
        new = {id_: tokens for id_, tokens in undecided.items() if attempts[id_] not in tokens.attempts}
        if is_retry:
            attempts.update({id_: self.new_id() for id_ in new})
        changed = entity
        for id_, tokens in new.items() if entity.too_large(self.growth) else ():
            for garbage in tokens.garbage():
                await self.tokens.delete(garbage)
            newest = tokens._replace(attempts=tokens.attempts[-NEWEST:])
            changed = changed.with_entry(id_, replace(entity.outbox[id_], tokens=newest))
        changed = _registered(attempts, changed)
        return entity if changed is entity else await self.entities.store(changed)

    async def mark_finished(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Delete the tokens of messages, the tokens of lost attempts, then the entries. Costs at least two requests."""
        done = [key for key in message_ids if key in entity.outbox]
        for message_id in done:
            await self.tokens.delete(_tokens(entity.outbox[message_id]).incoming)
        return await self.forget(entity, done) if done else entity

    async def forget(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Delete tokens of lost attempts, then entries. Raises `ConcurrencyConflictError` for an outdated entity."""
        for message_id in message_ids:
            tokens = _tokens(entity.outbox[message_id])
            if not tokens.are_decided:
                raise ConcurrencyConflictError(entity.key, "the message was finished meanwhile")
            for garbage in tokens.garbage():
                await self.tokens.delete(garbage)
        await self.tokens.flush()
        return await super().forget(entity, message_ids)


def _undecided(entity: Entity, keys: Collection[IdKey]) -> list[IdKey]:
    return [key for key in keys if key in entity.outbox and not _tokens(entity.outbox[key]).are_decided]


def _registered(attempts: Mapping[IdKey, str], entity: Entity) -> Entity:
    for key in _undecided(entity, attempts):
        entry, attempt = entity.outbox[key], attempts[key]
        if attempt not in _tokens(entry).attempts:
            entity = entity.with_entry(key, replace(entry, tokens=_tokens(entry).registered(attempt)))
    return entity


def _committed(attempts: Mapping[IdKey, str], entity: Entity) -> Entity:
    for key in _undecided(entity, attempts):
        entry = entity.outbox[key]
        tokens = _tokens(entry).decided(attempts[key])
        if tokens.are_decided:
            entity = entity.with_entry(key, replace(entry, tokens=tokens))
    return entity


def _tokens(entry: Entry) -> EntryTokens:
    if entry.tokens is None:
        raise AssertionError("Entries are written with their tokens.")
    return entry.tokens


@dataclass(kw_only=True, eq=False, repr=False)
class OutboxWithDeduplicationStore(OutboxAlgorithm):
    """Keeps the ids of processed messages in a deduplication store.

    After the commit, a message id is in the entity's outbox, then in both places, then only in the store. So the store
    must be queried *after* the entity was loaded. Otherwise both reads could miss an id that another attempt moves in
    between. In the right order, the conditional write fails if the id left the entity meanwhile.

    After Masternak and Pobiega, "Improving outbox" (exactly-once.github.io), last listing, which leaves an entry if an
    attempt crashes between writing the store and the entity. Here the next copy or a sweep removes it. Costs five
    requests for a new message, and two for a duplicate.
    """

    name: str = "deduplication-store"
    store: DeduplicationStore

    def tables(self) -> Sequence[Table]:
        return [self.table, self.store.table]

    async def known_elsewhere(self, entity: Entity, message: Prepared) -> Outcome | None:
        """Return the outcome of a message whose id is in the store, otherwise `None`. Costs one request."""
        fingerprint = await self.store.find(entity.key, message.key)
        if fingerprint is None:
            return None
        if not is_copy(message, fingerprint):
            return self.id_reused(message)
        return self.concluded(message, Status.DUPLICATE)

    async def mark_finished(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Add messages to the store, then remove them from the entity. Costs two requests."""
        done = {key: entity.outbox[key].fingerprint for key in message_ids if key in entity.outbox}
        await self.store.add(entity.key, done)
        left = await self.forget(entity, done)
        if left.tombstone != entity.tombstone:
            await self.store.remove(entity.key, done)  # the object was forgotten meanwhile, ids included
        return left

    async def evict_from(self, key: str, latest: int, *, dry_run: bool = False) -> int:
        """Delete from the store the fingerprints of an entity that were added up to `latest`. Return their number."""
        with one_of_many(self.store.table, key):
            return await self.store.evict(key, latest, dry_run=dry_run)
        return 0
