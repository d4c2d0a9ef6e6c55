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

from datetime import timedelta
from functools import partial

from eventstore import Table
from handlers.app import HandlerDefinition
from runtime.algorithms.ages import cut_off
from runtime.algorithms.algorithm import AT_ONCE, Publish
from runtime.algorithms.deduplication_store import DeduplicationStore
from runtime.algorithms.dispatching import dispatch
from runtime.algorithms.entities import Entities
from runtime.algorithms.entity import Entity
from runtime.algorithms.invoking import concluded, id_reused, invoke
from runtime.algorithms.retrying import count_of_each, until_undisturbed
from runtime.backoff import BackoffPolicy
from runtime.clock import Clock, system_clock
from runtime.copies import is_copy
from runtime.message_ids import IdKey
from runtime.outcome import Outcome, Status
from runtime.preparation import Prepared


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
        backoff: BackoffPolicy | None = None,
    ) -> None:
        self.store = store
        self.handler = handler
        self.publish = publish
        self.clock = clock
        self.backoff = backoff or BackoffPolicy()
        self.entities = Entities(table, handler, "deduplication-store", self.backoff)

    async def process(self, message: Prepared) -> Outcome:
        """Handle a message, publish its outputs, and return what became of it and what was published."""
        refusal = self.entities.refusal(message)
        if refusal is not None:
            return refusal
        return await until_undisturbed(self.backoff, partial(self.attempt, message))

    async def attempt(self, message: Prepared) -> Outcome:
        """Load, check the store, invoke unless the id is in the entity, store, dispatch, move the id to the store."""
        entity = await self.entities.load(self.entities.key(message.business_id))
        known = await self.store.find(entity.key, message.key)
        if known is not None:
            return await self.return_early(entity, message, known)
        status = Status.DUPLICATE
        if message.key not in entity.outbox:
            changed = invoke(self.handler, entity, message, self.clock())
            if isinstance(changed, Outcome):
                return changed
            entity = await self.entities.store(changed)
            status = Status.PROCESSED
        entry = entity.outbox[message.key]
        if not is_copy(message, entry.fingerprint):
            return id_reused(self.handler, message)
        await self.finish(entity, message.key)
        return concluded(self.handler, message, status, entry)

    async def return_early(self, entity: Entity, message: Prepared, known: bytes) -> Outcome:
        """Leave a message alone that the store knows: its outputs were dispatched before. Remove a leftover entry."""
        if not is_copy(message, known):
            return id_reused(self.handler, message)
        await self.forget(entity, message.key)
        return concluded(self.handler, message, Status.DUPLICATE)

    async def finish(self, entity: Entity, message_id: IdKey) -> Entity:
        """Dispatch what a message has to send, tell the store, and only then forget it in the entity."""
        entry = entity.outbox.get(message_id)
        if entry is None:
            return entity
        await dispatch(self.entities.table, self.publish, entry.outputs or ())
        await self.store.add(entity.key, message_id, entry.fingerprint)
        return await self.forget(entity, message_id)

    async def forget(self, entity: Entity, message_id: IdKey) -> Entity:
        """Remove the entry of a message from its entity, if there is one."""
        return await self.entities.update(entity, lambda current: current.without_entry(message_id))

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        """Finish what attempts that died have left, and return of how many messages."""
        latest = cut_off(self.clock, older_than)
        return await count_of_each(
            self.entities.unfinished(), self.backoff, lambda key: self.sweep_entity(key, latest)
        )

    async def sweep_entity(self, key: str, latest: int) -> int:
        """Finish the messages of one entity that were handled at a time or before, and return how many."""
        entity = await self.entities.load(key)
        pending = entity.pending_until(latest)
        for message_id in pending:
            known = await self.store.find(key, message_id)
            entity = await (self.finish if known is None else self.forget)(entity, message_id)
        return len(pending)

    async def evict(self, older_than: timedelta) -> int:
        """Let the store forget messages that were processed longer ago, and return how many.

        A copy that comes later is processed again: keep the ids for as long as copies may come.
        """
        return await count_of_each(
            self.entities.all_keys(), self.backoff, lambda key: self.store.evict(key, older_than)
        )
