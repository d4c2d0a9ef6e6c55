"""The three algorithms with an outbox: alone, with a de-duplication store, and with tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from eventstore import ConcurrencyConflictError, Table
from runtime.algorithms.outbox.algorithm import OutboxAlgorithm
from runtime.algorithms.outbox.entity import Entity, Entry
from runtime.algorithms.outbox.stores import DeduplicationStore, EntryTokens, TokenStore, token_of
from runtime.messages.envelope import IdKey
from runtime.messages.outcome import Outcome, Reason, Status
from runtime.messages.parsing import Prepared, is_copy
from runtime.versions.properties import one_of_many


@dataclass(kw_only=True, eq=False, repr=False)
class Outbox(OutboxAlgorithm):
    """Processes the messages of one handler, and keeps their ids in the entity.

    A new message changes the state and adds an entry with its outputs in one conditional write; then the outputs are
    published, and the entry is marked as finished. A message with an entry is a duplicate: the outputs that the entry
    still has are published, and nothing else happens. As outputs are stored, a handler need not be deterministic. Ids
    are kept until `evict` forgets the old ones; a copy that is delivered after that is processed again.

    After Masternak and Pobiega, "Improving outbox" (exactly-once.github.io), the first listing. Costs three requests
    for a new message (two when it has no outputs), one for a duplicate.
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


Recipients = Callable[[str], Collection[str]]
"""Names the handlers that take messages of a type and process them by tokens. An output for none needs no token."""

_NO_TOKEN = "It carries no token: issue one before it is sent (`consistent tokens`, `Processor.issue`)."  # noqa: S105 - a sentence


@dataclass(kw_only=True, eq=False, repr=False)
class TokenBased(OutboxAlgorithm):
    """Processes the messages of one handler while their tokens exist, and deletes these.

    No ids of processed messages are kept, so none have to be evicted. A token must never be created again once its
    message was published. So tokens are created under ids new for each attempt, and a conditional write (the
    checkpoint) decides whose tokens the messages carry, before any of them is published.

    The id of an attempt is registered in the entity before its tokens are created, and once the message is finished the
    tokens of attempts that lost are deleted. Tokens are created on the condition that the token of the incoming message
    still exists, and that one is deleted first: a slow attempt cannot create tokens after others have cleaned up.

    After Masternak and Pobiega, "Token-based deduplication" and "Exactly-once intuition" (exactly-once.github.io).
    Costs seven requests for a new message (five when no handler takes its outputs), two for a duplicate.
    """

    name: str = "tokens"
    tokens: TokenStore
    recipients: Recipients

    def tables(self) -> Sequence[Table]:
        """Return the table of the entities and that of the tokens."""
        return [self.table, self.tokens.table]

    async def known_elsewhere(self, entity: Entity, message: Prepared) -> Outcome | None:
        """Return the outcome of a message without a token, None when its token exists. Costs one request.

        A second token of a message with an entry is deleted, so that no copy is processed with it later.
        """
        token = token_of(message.envelope, self.handler.name)
        if token is None:
            return self.refused(message, Reason.INVALID_ENVELOPE, _NO_TOKEN)
        if not await self.tokens.exists(token):
            return self.concluded(message, Status.DUPLICATE)
        entry = entity.outbox.get(message.key)
        if entry is not None and _tokens(entry).incoming != token:
            await self.table.barrier()
            await self.tokens.delete(token)
        return None

    async def forget_leftover(self, entity: Entity, message: Prepared) -> None:
        """Remove the entry of a message whose token is gone, if it came with this token."""
        entry = entity.outbox.get(message.key)
        if entry is not None and _tokens(entry).incoming == token_of(message.envelope, self.handler.name):
            await super().forget_leftover(entity, message)

    def invoke(self, entity: Entity, message: Prepared, attempt: str) -> Entity | Outcome:
        """Invoke the handler, and register the id of this attempt in the entry."""
        token = token_of(message.envelope, self.handler.name)
        changed = super().invoke(entity, message, attempt)
        if token is None or isinstance(changed, Outcome):
            return changed
        entry = changed.outbox[message.key]
        recipients = tuple(tuple(self.recipients(output.type)) for output in entry.outputs or ())
        tokens = EntryTokens(token, recipients).registered(attempt)
        return self.if_it_fits(changed.with_entry(message.key, replace(entry, tokens=tokens)), message)

    async def make_ready(self, entity: Entity, attempts: Mapping[IdKey, str]) -> Entity:
        """Create tokens for the outputs of messages and commit them, unless those of other attempts are committed.

        Ids of attempts that are not registered yet are registered first. Costs one request for the tokens of each
        message and one for the commit; nothing when no handler takes the outputs.
        """
        entity = await self.entities.update(entity, partial(_registered, attempts))
        undecided = {key: attempts[key] for key in _undecided(entity, attempts)}
        if undecided:
            await self.table.barrier()
        for message_id, attempt in undecided.items():
            tokens = _tokens(entity.outbox[message_id])
            await self.tokens.create(tokens.incoming, tokens.of_attempt(attempt))
        if undecided:
            await self.tokens.flush()
        return await self.entities.update(entity, partial(_committed, undecided))

    async def mark_finished(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Delete the tokens of messages, and then all that is left of these messages. Costs two requests or more."""
        done = [key for key in message_ids if key in entity.outbox]
        for message_id in done:
            await self.tokens.delete(_tokens(entity.outbox[message_id]).incoming)
        return await self.forget(entity, done) if done else entity

    async def forget(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Delete the tokens of attempts that lost, and then the entries of messages whose own tokens are gone.

        Raises `ConcurrencyConflictError` when it is not decided yet who lost: then the entity was read too early.
        """
        for message_id in message_ids:
            tokens = _tokens(entity.outbox[message_id])
            if not tokens.are_decided:
                raise ConcurrencyConflictError(entity.key, "its message was finished since it was read")
            for garbage in tokens.garbage():
                await self.tokens.delete(garbage)
        await self.tokens.flush()
        return await super().forget(entity, message_ids)


def _undecided(entity: Entity, message_ids: Collection[IdKey]) -> list[IdKey]:
    """Return the messages of which it is not decided yet which tokens their outputs carry."""
    return [
        key for key in message_ids if key in entity.outbox and not _tokens(entity.outbox[key]).are_decided
    ]


def _registered(attempts: Mapping[IdKey, str], entity: Entity) -> Entity:
    """Return the entity with one more attempt for each message, unless its tokens are decided."""
    for key in _undecided(entity, attempts):
        entry, attempt = entity.outbox[key], attempts[key]
        if attempt not in _tokens(entry).attempts:
            entity = entity.with_entry(key, replace(entry, tokens=_tokens(entry).registered(attempt)))
    return entity


def _committed(attempts: Mapping[IdKey, str], entity: Entity) -> Entity:
    """Return the entity with the tokens of these attempts, unless it has those of others."""
    for key in _undecided(entity, attempts):
        entry = entity.outbox[key]
        tokens = _tokens(entry)._replace(committed=attempts[key])
        entity = entity.with_entry(key, replace(entry, tokens=tokens))
    return entity


def _tokens(entry: Entry) -> EntryTokens:
    if entry.tokens is None:
        raise AssertionError("Entries are written with their tokens.")
    return entry.tokens


@dataclass(kw_only=True, eq=False, repr=False)
class OutboxWithDeduplicationStore(OutboxAlgorithm):
    """Processes the messages of one handler, and keeps their ids in a store apart from the entities.

    From the commit on, the id of a message is in at least one place: first in the entity's outbox, then in both, then
    in the store. So the store is asked only *after* the entity was loaded. Asked before, it could answer that a message
    is unknown; and the entity, loaded after another attempt has moved the id to the store, would not have it either.
    Asked after, the conditional write is refused when the id was removed from the entity meanwhile.

    After Masternak and Pobiega, "Improving outbox" (exactly-once.github.io), the last listing. That one leaves an entry
    when an attempt dies between the store and the entity; here the next copy or the sweeper removes it. Costs five
    requests for a new message, two for a duplicate.
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
