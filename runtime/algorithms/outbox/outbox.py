"""The outbox: business state, outgoing messages and ids of processed messages in one row.

A new message changes the state and leaves its outputs beside it in one conditional write; then they are dispatched,
and the entry is marked. A message whose id is there is a duplicate: what it still has to send is sent, nothing else
happens. As the outputs are stored, a handler need not be deterministic.

The ids are kept until `evict` forgets the old ones. A duplicate that comes after that is processed again.

After Masternak and Pobiega, "Improving outbox" (exactly-once.github.io), the first listing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from functools import partial

from eventstore import Table
from handlers.app import HandlerDefinition
from runtime.algorithms.algorithm import AT_ONCE, Publish
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


class Outbox:
    """Processes the messages of one handler with an outbox in each entity.

    Costs three requests for a new message (two when it has no outputs), one for a duplicate.
    """

    def __init__(
        self,
        table: Table,
        handler: HandlerDefinition,
        publish: Publish,
        *,
        clock: Clock = system_clock,
        retries: RetryPolicy | None = None,
    ) -> None:
        self.handler = handler
        self.publish = publish
        self.clock = clock
        self.retries = (retries or RetryPolicy()).beside(table)
        self.entities = Entities(table, handler, "outbox", self.retries)

    async def process(self, message: Prepared) -> Outcome:
        """Handle a message, publish its outputs, and return what became of it and what was published."""
        refusal = self.entities.refusal(message)
        if refusal is not None:
            return refusal
        return await until_undisturbed(self.retries, partial(self.attempt, message))

    async def attempt(self, message: Prepared) -> Outcome:
        """Load, invoke unless the id is there, store, dispatch, mark as dispatched."""
        entity = await self.entities.load(self.entities.key(message.business_id))
        status = Status.DUPLICATE
        if message.key not in entity.outbox:
            changed = self.invoke(entity, message)
            if isinstance(changed, Outcome):
                return changed
            entity = await self.entities.store(_settled(changed, message.key))
            status = Status.PROCESSED
        entry = entity.outbox[message.key]
        if not is_copy(message, entry.fingerprint):
            return id_reused(self.handler, message)
        await self.finish(entity, message.key)
        return concluded(self.handler, message, status, entry)

    async def finish(self, entity: Entity, message_id: IdKey) -> Entity:
        """Dispatch what a message still has to send, and mark that this is done."""
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

    async def known_elsewhere(self, entity: Entity, message: Prepared) -> Outcome | None:  # noqa: ARG002
        """Return None: all evidence is in the entity."""
        return None

    async def make_ready(self, entity: Entity, attempts: Mapping[IdKey, str]) -> Entity:  # noqa: ARG002
        """Return the entity as it is: its outputs can be dispatched once it is stored."""
        return entity

    def outputs(self, entry: Entry) -> tuple[Output, ...]:
        """Return what an entry has to send."""
        return entry.outputs or ()

    async def settle(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Mark messages as dispatched."""
        return await self.entities.update(entity, lambda current: current.dispatched(message_ids))

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        """Dispatch what attempts that died have left, and return of how many messages."""
        latest = cut_off(self.clock, older_than)
        return await count_of_each(
            self.entities.unfinished(), self.retries, lambda key: self.sweep_entity(key, latest)
        )

    async def sweep_entity(self, key: str, latest: int) -> int:
        """Finish the messages of one entity that were handled at a time or before, and return how many."""
        entity = await self.entities.load(key)
        pending = entity.pending_until(latest)
        for message_id in pending:
            entity = await self.finish(entity, message_id)
        return len(pending)

    async def evict(self, older_than: timedelta, *, dry_run: bool = False) -> int:
        """Forget messages that were processed longer ago, and return how many.

        A copy that comes later is processed again: keep the ids for as long as copies may come.
        """
        latest = cut_off(self.clock, older_than)
        return await count_of_each(
            self.entities.all_keys(), self.retries, lambda key: self.evict_from(key, latest, dry_run=dry_run)
        )

    async def evict_from(self, key: str, latest: int, *, dry_run: bool = False) -> int:
        """Forget the messages of one entity that were handled at a time or before, and return how many."""
        entity = await self.entities.load(key)
        if dry_run:
            return len(entity.outbox) - len(entity.without_old(latest).outbox)
        rest = await self.entities.update(entity, lambda current: current.without_old(latest))
        return sum(message_id not in rest.outbox for message_id in entity.outbox)


def _settled(entity: Entity, message_id: IdKey) -> Entity:
    """Return an entity in which a message without outputs has nothing left to do."""
    return entity if entity.outbox[message_id].outputs else entity.dispatched([message_id])
