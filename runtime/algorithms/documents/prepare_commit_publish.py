"""Prepare, commit, publish; register, clean up: side effects other than messages, exactly once.

A document that a message announces cannot be written in the transaction that changes the state. So each attempt
prepares its documents under names of its own, visible to nobody; the conditional write that changes the state decides
whose documents count; then those are published, each before the message that names it. Documents of attempts that lost
are deleted: these attempts registered in the entity before they prepared anything.

An attempt has lost when somebody has written the entity since it registered. That its own write was refused, or not
answered, does not prove it: so nothing is deleted because of an error.

Messages are de-duplicated by an outbox: their ids are kept in the entity until `evict` forgets them.

After Masternak and Pobiega, "Exactly-once intuition" (exactly-once.github.io).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from eventstore import Table
from handlers.app import HandlerDefinition
from runtime.algorithms.algorithm import AT_ONCE, Publish
from runtime.algorithms.documents.draft import DOCUMENT, Draft, Render, drafted
from runtime.algorithms.documents.effects import Effect, Effects
from runtime.algorithms.fresh_ids import NewId, fresh_id
from runtime.algorithms.outbox.entity import Entity
from runtime.algorithms.outbox.intents import Intent
from runtime.algorithms.outbox.invoking import after_forgetting, concluded, id_reused
from runtime.algorithms.outbox.outbox import Outbox
from runtime.algorithms.refusals import Refusals, decided_before
from runtime.batches.context import BatchContext
from runtime.batches.open_batches import OpenBatches
from runtime.clock import Clock, cut_off, system_clock
from runtime.messages.copies import is_copy
from runtime.messages.deliveries import Delivery, Prepared
from runtime.messages.outcome import Outcome, Output, Status
from runtime.retries import RetryPolicy, count_of_each, until_undisturbed


class PrepareCommitPublish:
    """Processes the messages of one handler with an outbox, and writes documents for what it publishes.

    Costs what the outbox costs, and for a message with documents one request more, and two for each document.
    """

    def __init__(
        self,
        table: Table,
        effects: Effects,
        handler: HandlerDefinition,
        render: Render,
        publish: Publish,
        *,
        clock: Clock = system_clock,
        new_id: NewId = fresh_id,
        retries: RetryPolicy | None = None,
    ) -> None:
        self.outbox = Outbox(
            name="prepare-commit-publish",
            table=table,
            handler=handler,
            publish=partial(_publish, effects, publish),
            clock=clock,
            new_id=new_id,
            retries=retries or RetryPolicy(),
        )
        self.handler = handler
        self.effects = effects
        self.render = render

    async def process(self, message: Delivery, *, redrive_beside: OpenBatches | None = None) -> Outcome:
        """Handle a message, publish its documents and outputs, and return what became of it.

        A message that was refused before stays so, unless it is redriven.
        """
        if isinstance(message, Outcome) or self.outbox.entities.refusal(message):
            return await self.outbox.process(message, redrive_beside=redrive_beside)
        prepared: list[Effect] = []
        attempt = partial(self.attempt, prepared, message, BatchContext().redriving(redrive_beside))
        outcome = await until_undisturbed(self.outbox.retries, attempt)
        await self.withdraw(prepared, outcome)
        return outcome

    async def attempt(self, prepared: list[Effect], message: Prepared, batch: BatchContext) -> Outcome:
        """Load, invoke, register, prepare, commit, publish, finish, clean up.

        The effects that it prepares are added to `prepared`, whatever becomes of the attempt.
        """
        entity, status = await self.load(message, prepared), Status.DUPLICATE
        forgotten = after_forgetting(self.handler, entity, message)
        if forgotten is not None:
            return forgotten
        refusals = Refusals(entity.letters, batch)
        if message.key not in entity.outbox:
            draft = refusals.refusal(0, message) or self.invoke(entity, message)
            if isinstance(draft, Outcome):
                return await self.outbox.refuse(entity, refusals, message, draft)
            refusals.processed(0, message.key, message.fingerprint)
            draft = draft._replace(changed=draft.changed.with_refusals(refusals, 1))
            entity = await self.register(entity, draft)
            await self.prepare(draft, prepared)
            entity, status = await self.commit(entity, draft), Status.PROCESSED
        entry = entity.outbox[message.key]
        if not is_copy(message, entry.fingerprint):
            reused = decided_before(refusals, 0, message, id_reused(self.handler, message))
            return await self.outbox.refuse(entity, refusals, message, reused)
        outputs = await self.outbox.publish_outputs(entity, message.key)
        entity = await self.outbox.finish(entity, [message.key])
        await self.clean_up(entity)
        return concluded(self.handler, message, status, entry.version, outputs)

    async def load(self, message: Prepared, prepared: Sequence[Effect]) -> Entity:
        """Load the entity, and make sure that an earlier write of this worker cannot take effect late."""
        entities = self.outbox.entities
        entity = await entities.load(entities.key(message.business_id))
        latest = entity.intents.latest
        if latest is not None and any(effect.attempt == latest.attempt for effect in prepared):
            return await entities.store(replace(entity, intents=entity.intents.all_lost()))
        return entity

    def invoke(self, entity: Entity, message: Prepared) -> Draft | Outcome:
        """Invoke the handler and render documents, under names of this attempt; or return the dead letter."""
        attempt = self.outbox.new_id()
        changed = self.outbox.invoke(entity, message, attempt)
        if isinstance(changed, Outcome):
            return changed
        return drafted(self.handler, changed, message, attempt, self.render)

    async def register(self, entity: Entity, draft: Draft) -> Entity:
        """Note in the entity what this attempt is going to prepare, before it does. Costs one request."""
        if not draft.documents:
            return replace(entity, intents=entity.intents.all_lost())
        intent = Intent(draft.documents[0][0].attempt, len(draft.documents), self.outbox.clock())
        registered = replace(entity, intents=entity.intents.registering(intent))
        return await self.outbox.entities.store(registered)

    async def prepare(self, draft: Draft, prepared: list[Effect]) -> None:
        """Store documents where nobody sees them. Costs one request for each."""
        for effect, content in draft.documents:
            prepared.append(effect)
            await self.effects.prepare(effect, content)

    async def commit(self, entity: Entity, draft: Draft) -> Entity:
        """Store the state, the outputs and which documents count, if nobody wrote since this attempt registered."""
        committed = replace(draft.changed, etag=entity.etag, intents=entity.intents.committed())
        return await self.outbox.entities.store(committed)

    async def clean_up(self, entity: Entity) -> Entity:
        """Delete what attempts that lost have prepared, and remove their intents."""
        lost = entity.intents.lost
        for intent in lost:
            for number in range(intent.effects):
                await self.effects.delete(Effect(entity.key, intent.attempt, number))
        return await self.outbox.entities.update(entity, partial(_without_intents, lost))

    async def withdraw(self, prepared: Sequence[Effect], outcome: Outcome) -> None:
        """Delete what this worker has prepared in attempts that lost, as others may have cleaned up before that."""
        announced = {output.headers.get(DOCUMENT) for output in outcome.outputs}
        for effect in prepared:
            if effect.name not in announced:
                await self.effects.delete(effect)

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        """Publish and finish messages whose worker died, and delete what no entity knows. Return how many messages."""
        latest, retries = cut_off(self.outbox.clock, older_than), self.outbox.retries
        finished = await count_of_each(
            self.outbox.entities.unfinished(), retries, lambda key: self.sweep_entity(key, latest)
        )
        await until_undisturbed(retries, self.collect)
        return finished

    async def sweep_entity(self, key: str, latest: int) -> int:
        """Finish the messages of one entity, and clean up after attempts that never committed."""
        finished = await self.outbox.sweep_entity(key, latest)
        entities = self.outbox.entities
        entity = await entities.load(key)
        await self.clean_up(await entities.update(entity, partial(_giving_up, latest)))
        return finished

    async def collect(self) -> None:
        """Delete effects that no entity knows: prepared so late that others had cleaned up before.

        An attempt registers before it prepares. If its effect is there and its entity, read after that, does not know
        it, the attempt has lost, or its effect is published by now; and published effects are not deleted.
        """
        entities = self.outbox.entities
        async for effect in self.effects.unpublished():
            if effect.owner.startswith(entities.key("")):
                entity = await entities.load(effect.owner)
                if not _knows(entity, effect):
                    await self.effects.delete(effect)

    async def evict(self, older_than: timedelta, *, dry_run: bool = False) -> int:
        """Forget the ids of messages processed longer ago, and return how many. Published documents stay."""
        return await self.outbox.evict(older_than, dry_run=dry_run)


async def _publish(effects: Effects, publish: Publish, output: Output) -> None:
    """Publish the document of an output, and then the output, which names it."""
    if DOCUMENT in output.headers:
        await effects.publish(output.headers[DOCUMENT])
    await publish(output)


def _knows(entity: Entity, effect: Effect) -> bool:
    announced = {
        output.headers.get(DOCUMENT) for entry in entity.outbox.values() for output in entry.to_publish
    }
    return effect.attempt in entity.intents.attempts or effect.name in announced


def _without_intents(cleaned: tuple[Intent, ...], entity: Entity) -> Entity:
    rest = entity.intents.without(cleaned)
    return entity if rest == entity.intents else replace(entity, intents=rest)


def _giving_up(latest: int, entity: Entity) -> Entity:
    rest = entity.intents.lost_before(latest)
    return entity if rest == entity.intents else replace(entity, intents=rest)
