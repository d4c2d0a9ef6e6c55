"""The outbox with a separate de-duplication store: the entity forgets a message once the store knows it.

From the commit onward there is evidence of a processed message in at least one place: in the entity's outbox first,
then in both, then in the store. So the store is asked only *after* the entity is loaded. Asked before, it could say
that a message is unknown, and then the entity, loaded once another attempt has moved the evidence into the store, would
say so too. As it is, an entity from which the evidence was removed meanwhile is not the one that was loaded, and the
conditional write is refused.

After Masternak and Pobiega, "Improving outbox" (exactly-once.github.io), the last listing; that one leaves an entry
behind when an attempt dies between the store and the entity, here the next copy or the sweeper removes it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from functools import partial

from eventstore import Table
from handlers.app import HandlerDefinition
from runtime.algorithms.algorithm import AT_ONCE, Publish
from runtime.algorithms.outbox.deduplication_store import DeduplicationStore
from runtime.algorithms.outbox.entities import Entities
from runtime.algorithms.outbox.entity import Entity
from runtime.algorithms.outbox.entry import Entry
from runtime.algorithms.outbox.invoking import concluded, id_reused, invoke
from runtime.algorithms.publishing import dispatch
from runtime.clock import Clock, cut_off, system_clock
from runtime.messages.copies import is_copy
from runtime.messages.message_ids import IdKey
from runtime.messages.outcome import Outcome, Output, Status
from runtime.messages.parsing import Prepared
from runtime.retries import RetryPolicy, count_of_each, until_undisturbed


class OutboxWithDeduplicationStore:
    """Processes the messages of one handler with a small outbox in each entity and a store of processed messages.

    Costs five requests for a new message, two for a duplicate.
    """

    def __init__(
        self,
        table: Table,
        store: DeduplicationStore,
        handler: HandlerDefinition,
        publish: Publish,
        *,
        clock: Clock = system_clock,
        retries: RetryPolicy | None = None,
    ) -> None:
        self.store = store
        self.handler = handler
        self.publish = publish
        self.clock = clock
        self.retries = (retries or RetryPolicy()).beside(table)
        self.entities = Entities(table, handler, "deduplication-store", self.retries)

    async def process(self, message: Prepared) -> Outcome:
        """Handle a message, publish its outputs, and return what became of it and what was published."""
        refusal = self.entities.refusal(message)
        if refusal is not None:
            return refusal
        return await until_undisturbed(self.retries, partial(self.attempt, message))

    async def attempt(self, message: Prepared) -> Outcome:
        """Load, check the store, invoke unless the id is in the entity, store, dispatch, move the id to the store."""
        entity = await self.entities.load(self.entities.key(message.business_id))
        known = await self.known_elsewhere(entity, message)
        if known is not None:
            return await self.return_early(entity, message, known)
        status = Status.DUPLICATE
        if message.key not in entity.outbox:
            changed = self.invoke(entity, message)
            if isinstance(changed, Outcome):
                return changed
            entity = await self.entities.store(changed)
            status = Status.PROCESSED
        entry = entity.outbox[message.key]
        if not is_copy(message, entry.fingerprint):
            return id_reused(self.handler, message)
        await self.finish(entity, message.key)
        return concluded(self.handler, message, status, entry)

    async def known_elsewhere(self, entity: Entity, message: Prepared) -> Outcome | None:
        """Return the outcome of a message that the store knows, None when it knows none. Costs one request."""
        known = await self.store.find(entity.key, message.key)
        if known is None:
            return None
        if not is_copy(message, known):
            return id_reused(self.handler, message)
        return concluded(self.handler, message, Status.DUPLICATE)

    async def return_early(self, entity: Entity, message: Prepared, known: Outcome) -> Outcome:
        """Leave a message alone that the store knows: its outputs were dispatched before. Remove a leftover entry."""
        if known.status is Status.DUPLICATE:
            await self.forget(entity, [message.key])
        return known

    async def finish(self, entity: Entity, message_id: IdKey) -> Entity:
        """Dispatch what a message has to send, tell the store, and only then forget it in the entity."""
        entry = entity.outbox.get(message_id)
        if entry is None:
            return entity
        await dispatch(self.entities.table, self.publish, entry.outputs or ())
        return entity if entry.batch else await self.settle(entity, [message_id])

    def invoke(
        self,
        entity: Entity,
        message: Prepared,
        batch: str | None = None,
        attempt: str = "",  # noqa: ARG002 - the interface's
    ) -> Entity | Outcome:
        """Return the entity with what a message did, or the dead letter that the message is."""
        return invoke(self.handler, entity, message, self.clock(), batch)

    async def make_ready(self, entity: Entity, attempts: Mapping[IdKey, str]) -> Entity:  # noqa: ARG002
        """Return the entity as it is: its outputs can be dispatched once it is stored."""
        return entity

    def outputs(self, entry: Entry) -> tuple[Output, ...]:
        """Return what an entry has to send."""
        return entry.outputs or ()

    async def settle(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Tell the store of messages that were dispatched, and only then forget them in the entity."""
        done = {key: entity.outbox[key].fingerprint for key in message_ids if key in entity.outbox}
        await self.store.add(entity.key, done)
        return await self.forget(entity, done)

    async def forget(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Remove the entries of messages from their entity, as far as it has them."""
        return await self.entities.update(entity, lambda current: current.without(message_ids))

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        """Finish what attempts that died have left, and return of how many messages."""
        latest = cut_off(self.clock, older_than)
        return await count_of_each(
            self.entities.unfinished(), self.retries, lambda key: self.sweep_entity(key, latest)
        )

    async def sweep_entity(self, key: str, latest: int) -> int:
        """Finish the messages of one entity that were handled at a time or before, and return how many."""
        entity = await self.entities.load(key)
        pending = entity.pending_until(latest)
        for message_id in pending:
            if await self.store.find(key, message_id) is None:
                entity = await self.finish(entity, message_id)
            else:
                entity = await self.forget(entity, [message_id])
        return len(pending)

    async def evict(self, older_than: timedelta, *, dry_run: bool = False) -> int:
        """Let the store forget messages that were processed longer ago, and return how many.

        A copy that comes later is processed again: keep the ids for as long as copies may come.
        """
        return await count_of_each(
            self.entities.all_keys(),
            self.retries,
            lambda key: self.store.evict(key, older_than, dry_run=dry_run),
        )
