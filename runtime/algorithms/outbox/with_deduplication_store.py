"""The outbox with a separate de-duplication store: the entity forgets a message once the store knows it.

From the commit on, the id of a message is in at least one place: first in the entity's outbox, then in both, then in
the store. So the store is asked only *after* the entity was loaded. Asked before, it could answer that a message is
unknown; and the entity, loaded after another attempt has moved the id to the store, would not have it either. Asked
after, an entity from which the id was removed meanwhile is not the one that was loaded, and the conditional write is
refused.

After Masternak and Pobiega, "Improving outbox" (exactly-once.github.io), the last listing. That one leaves an entry
behind when an attempt dies between the store and the entity; here the next copy or the sweeper removes it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from eventstore import Table
from runtime.algorithms.outbox.algorithm import OutboxAlgorithm
from runtime.algorithms.outbox.deduplication_store import DeduplicationStore
from runtime.algorithms.outbox.entity import Entity
from runtime.messages.copies import is_copy
from runtime.messages.deliveries import Prepared
from runtime.messages.message_ids import IdKey
from runtime.messages.outcome import Outcome, Status
from runtime.storage.damage import one_of_many


@dataclass(kw_only=True, eq=False, repr=False)
class OutboxWithDeduplicationStore(OutboxAlgorithm):
    """Processes the messages of one handler, and keeps their ids in a store apart from the entities.

    Costs five requests for a new message, two for a duplicate.
    """

    name: str = "deduplication-store"
    store: DeduplicationStore

    def tables(self) -> Sequence[Table]:
        """Return the table of the entities and that of the store."""
        return [self.table, self.store.table]

    async def known_elsewhere(self, entity: Entity, message: Prepared) -> Outcome | None:
        """Return the outcome of a message whose id is in the store. Costs one request."""
        fingerprint = await self.store.find(entity.key, message.key)
        if fingerprint is None:
            return None
        if not is_copy(message, fingerprint):
            return self.id_reused(message)
        return self.concluded(message, Status.DUPLICATE)

    async def mark_finished(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Add messages to the store, and only then remove them from the entity. Costs two requests."""
        done = {key: entity.outbox[key].fingerprint for key in message_ids if key in entity.outbox}
        await self.store.add(entity.key, done)
        left = await self.forget(entity, done)
        if left.tombstone != entity.tombstone:
            await self.store.remove(entity.key, done)  # it was forgotten meanwhile, and its ids with it
        return left

    async def evict_from(self, key: str, latest: int, *, dry_run: bool = False) -> int:
        """Let the store forget the messages of one entity that were added to it at a time or before."""
        with one_of_many(self.store.table, key):
            return await self.store.evict(key, latest, dry_run=dry_run)
        return 0
