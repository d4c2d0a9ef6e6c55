"""The outbox: business state, outputs and ids of processed messages in one row.

A new message changes the state and adds an entry with its outputs in one conditional write; then the outputs are
published, and the entry is marked as finished. A message with an entry is a duplicate: the outputs that the entry still
has are published, and nothing else happens. As outputs are stored, a handler need not be deterministic.

Ids are kept until `evict` forgets the old ones. A copy that is delivered after that is processed again.

After Masternak and Pobiega, "Improving outbox" (exactly-once.github.io), the first listing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from runtime.algorithms.outbox.algorithm import OutboxAlgorithm
from runtime.algorithms.outbox.entity import Entity
from runtime.messages.deliveries import Prepared
from runtime.messages.message_ids import IdKey
from runtime.messages.outcome import Outcome
from runtime.storage.damage import one_of_many


@dataclass(kw_only=True, eq=False, repr=False)
class Outbox(OutboxAlgorithm):
    """Processes the messages of one handler, and keeps their ids in the entity.

    Costs three requests for a new message (two when it has no outputs), one for a duplicate.
    """

    name: str = "outbox"

    def invoke(self, entity: Entity, message: Prepared, attempt: str) -> Entity | Outcome:
        """Invoke the handler; a single message without outputs is finished as soon as it is stored."""
        changed = super().invoke(entity, message, attempt)
        if isinstance(changed, Outcome) or self.batch.batch_id or changed.outbox[message.key].outputs:
            return changed
        return changed.finished([message.key])

    async def mark_finished(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Remove the outputs of messages from their entries, and keep the ids. Costs one request."""
        return await self.entities.update(entity, lambda current: current.finished(message_ids))

    async def evict_from(self, key: str, latest: int, *, dry_run: bool = False) -> int:
        """Remove the finished entries of messages that were handled at a time or before. Costs two requests."""
        with one_of_many(self.entities.table, key):
            entity = await self.entities.load(key)
            if dry_run:
                return len(entity.outbox) - len(entity.without_old(latest).outbox)
            rest = await self.entities.update(entity, lambda current: current.without_old(latest))
            return sum(message_id not in rest.outbox for message_id in entity.outbox)
        return 0
