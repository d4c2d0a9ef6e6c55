"""Prepare, commit, publish; register, clean up: side effects other than messages, exactly once.

A document that a message announces cannot be written in the transaction that changes the state. So each attempt
prepares its documents under names of its own, visible to nobody; the conditional write that changes the state decides
whose documents count; then those are published, and the messages that name them go out. What attempts that lost have
prepared is deleted: they registered in the entity before they prepared anything.

An attempt has lost when somebody has written the entity since it registered. That its own write was refused, or not
answered, does not prove it: so nothing is deleted on the strength of an error.

Messages are de-duplicated as in the outbox: their ids are kept in the entity until `evict` forgets them.

After Masternak and Pobiega, "Exactly-once intuition" (exactly-once.github.io).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from hashlib import sha256

from eventstore import Table
from handlers.app import HandlerDefinition
from runtime.algorithms.algorithm import AT_ONCE, Publish
from runtime.algorithms.documents.effects import MAX_BYTES, Effect, Effects
from runtime.algorithms.documents.intents import Intent
from runtime.algorithms.fresh_ids import NewId, fresh_id
from runtime.algorithms.outbox.entities import Entities
from runtime.algorithms.outbox.entity import Entity
from runtime.algorithms.outbox.invoking import concluded, id_reused, if_it_fits, invoke, refused
from runtime.algorithms.outbox.outbox import Outbox
from runtime.clock import Clock, system_clock
from runtime.messages.copies import is_copy
from runtime.messages.message_ids import IdKey
from runtime.messages.outcome import Outcome, Output, Reason, Status
from runtime.messages.parsing import Prepared
from runtime.retries import RetryPolicy, until_undisturbed

DOCUMENT = "document"
"""The header in which a message names its document."""

DIGEST = "document-sha256"
"""The header with the SHA-256 of the document, in hexadecimal digits."""

Render = Callable[[Output], bytes | None]
"""Makes the document of an output, None for an output that has none. Need not make the same one twice."""

Documents = dict[int, tuple[Effect, bytes]]
"""The documents of some outputs, by the outputs' numbers."""


class PrepareCommitPublish(Outbox):
    """Processes the messages of one handler, and writes documents for what it publishes.

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
        super().__init__(table, handler, publish, clock=clock, retries=retries)
        self.effects = effects
        self.render = render
        self.new_id = new_id
        self.entities = Entities(table, handler, "prepare-commit-publish", self.retries)

    async def process(self, message: Prepared) -> Outcome:
        """Handle a message, publish its documents and outputs, and return what became of it."""
        refusal = self.entities.refusal(message)
        if refusal is not None:
            return refusal
        prepared: list[Effect] = []
        outcome = await until_undisturbed(self.retries, partial(self.attempt_with, prepared, message))
        await self.withdraw(prepared, outcome)
        return outcome

    async def attempt_with(self, prepared: list[Effect], message: Prepared) -> Outcome:
        """Load, invoke unless the id is there, register, prepare, commit, publish, clean up.

        What it prepares is noted in `prepared`, whatever becomes of it.
        """
        entity = await self.load(message, prepared)
        status = Status.DUPLICATE
        if message.key not in entity.outbox:
            changed = invoke(self.handler, entity, message, self.clock())
            if isinstance(changed, Outcome):
                return changed
            documents = self.render_documents(changed, message)
            if isinstance(documents, Outcome):
                return documents
            entity = await self.register(entity, documents)
            await self.prepare(documents, prepared)
            entity = await self.commit(entity, changed, message.key, documents)
            status = Status.PROCESSED
        entry = entity.outbox[message.key]
        if not is_copy(message, entry.fingerprint):
            return id_reused(self.handler, message)
        await self.finish(entity, message.key)
        return concluded(self.handler, message, status, entry)

    async def load(self, message: Prepared, prepared: list[Effect]) -> Entity:
        """Load the entity, and see to it that what an earlier attempt of this worker wrote cannot take effect late."""
        entity = await self.entities.load(self.entities.key(message.business_id))
        latest = entity.intents.latest
        if latest is not None and any(effect.attempt == latest.attempt for effect in prepared):
            return await self.entities.store(replace(entity, intents=entity.intents.all_lost()))
        return entity

    def render_documents(self, changed: Entity, message: Prepared) -> Documents | Outcome:
        """Make the documents of a message's outputs, under names of this attempt, or say why it is a dead letter."""
        outputs, attempt = changed.outbox[message.key].outputs or (), self.new_id()
        documents: Documents = {}
        try:
            for index, output in enumerate(outputs):
                content = self.render(output)
                if content is not None:
                    documents[index] = (Effect(changed.key, attempt, len(documents)), content)
        except Exception as error:  # noqa: BLE001 - it is the user's, and may raise anything
            return refused(self.handler, message, Reason.HANDLER_ERROR, f"{type(error).__name__}: {error}")
        largest = max((len(content) for _, content in documents.values()), default=0)
        if largest > MAX_BYTES:
            problem = f"A document has {largest} bytes; up to {MAX_BYTES} can be stored."
            return refused(self.handler, message, Reason.STATE_TOO_LARGE, problem)
        announced = if_it_fits(self.handler, _announcing(changed, message.key, documents), message)
        return announced if isinstance(announced, Outcome) else documents

    async def register(self, entity: Entity, documents: Documents) -> Entity:
        """Note in the entity what this attempt is going to prepare, before it does."""
        if not documents:
            return replace(entity, intents=entity.intents.all_lost())
        attempt = next(effect.attempt for effect, _ in documents.values())
        intent = Intent(attempt, len(documents), self.clock())
        return await self.entities.store(replace(entity, intents=entity.intents.registering(intent)))

    async def prepare(self, documents: Documents, prepared: list[Effect]) -> None:
        """Store documents where nobody sees them."""
        for effect, content in documents.values():
            prepared.append(effect)
            await self.effects.prepare(effect, content)

    async def commit(
        self, entity: Entity, changed: Entity, message_id: IdKey, documents: Documents
    ) -> Entity:
        """Write the state, the outputs, and which documents count, if nobody wrote since this attempt registered."""
        announced = _announcing(changed, message_id, documents)
        if not announced.outbox[message_id].outputs:
            announced = announced.dispatched([message_id])
        return await self.entities.store(
            replace(announced, etag=entity.etag, intents=entity.intents.committed())
        )

    async def finish(self, entity: Entity, message_id: IdKey) -> Entity:
        """Publish the documents of a message, dispatch its outputs, mark that, and clean up after those who lost."""
        entry = entity.outbox.get(message_id)
        if entry is not None:
            await self.entities.table.barrier()
            for output in entry.outputs or ():
                if DOCUMENT in output.headers:
                    await self.effects.publish(_effect(entity.key, output.headers[DOCUMENT]))
        return await self.clean_up(await super().finish(entity, message_id))

    async def clean_up(self, entity: Entity) -> Entity:
        """Delete what attempts that lost have prepared, and forget that they did."""
        lost = entity.intents.lost
        for intent in lost:
            for effect in intent.of(entity.key):
                await self.effects.delete(effect)
        return await self.entities.update(entity, partial(_without_intents, lost))

    async def withdraw(self, prepared: list[Effect], outcome: Outcome) -> None:
        """Delete what this worker has prepared in attempts that lost, also if others have cleaned up before that."""
        announced = {output.headers.get(DOCUMENT) for output in outcome.outputs}
        for effect in prepared:
            if effect.name not in announced:
                await self.effects.delete(effect)

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        """Finish what attempts that died have left, and return of how many messages."""
        finished = await super().sweep(older_than)
        await until_undisturbed(self.retries, self.collect)
        return finished

    async def sweep_entity(self, key: str, latest: int) -> int:
        """Finish the messages of one entity, and clean up after attempts that never committed."""
        finished = await super().sweep_entity(key, latest)
        entity = await self.entities.load(key)
        await self.clean_up(await self.entities.update(entity, partial(_giving_up, latest)))
        return finished

    async def collect(self) -> None:
        """Delete effects that no entity knows: prepared by attempts so late that others had cleaned up before.

        An attempt registers before it prepares. If its effect is there and its entity, read after that, does not know
        it, it has lost, or its effect is published by now, and those are not deleted.
        """
        async for effect in self.effects.unpublished():
            if effect.owner.startswith(self.entities.key("")):
                entity = await self.entities.load(effect.owner)
                if not _knows(entity, effect):
                    await self.effects.delete(effect)


def _announcing(entity: Entity, message_id: IdKey, documents: Documents) -> Entity:
    """Return an entity in which the outputs of a message name their documents."""
    entry = entity.outbox[message_id]
    outputs = tuple(
        output._replace(headers={**output.headers, **_headers(*documents[index])})
        if index in documents
        else output
        for index, output in enumerate(entry.outputs or ())
    )
    return entity.with_entry(message_id, replace(entry, outputs=outputs))


def _headers(effect: Effect, content: bytes) -> dict[str, str]:
    return {DOCUMENT: effect.name, DIGEST: sha256(content).hexdigest()}


def _effect(owner: str, name: str) -> Effect:
    attempt, _, index = name.rpartition("-")
    return Effect(owner, attempt, int(index))


def _knows(entity: Entity, effect: Effect) -> bool:
    announced = {
        output.headers.get(DOCUMENT) for entry in entity.outbox.values() for output in entry.outputs or ()
    }
    return effect.attempt in entity.intents.attempts or effect.name in announced


def _without_intents(cleaned: tuple[Intent, ...], entity: Entity) -> Entity:
    rest = entity.intents.without(cleaned)
    return entity if rest == entity.intents else replace(entity, intents=rest)


def _giving_up(latest: int, entity: Entity) -> Entity:
    rest = entity.intents.lost_before(latest)
    return entity if rest == entity.intents else replace(entity, intents=rest)
