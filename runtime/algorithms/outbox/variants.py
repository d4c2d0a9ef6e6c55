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
    """Keeps the ids of processed messages in the entity.

    A message with an entry is a duplicate: its unpublished outputs are published, and nothing else happens. Because
    outputs are stored, handlers need not be deterministic. Copies delivered after `evict` forgot the id are processed
    again.

    After Masternak and Pobiega, "Improving outbox" (exactly-once.github.io), first listing. Costs three requests for a
    new message (two if it has no outputs), one for a duplicate.
    """

    name: str = "outbox"

    def invoke(self, entity: Entity, message: Prepared, attempt: str) -> Entity | Outcome:
        """Call the handler. A single message without outputs is finished with the same write."""
        changed = super().invoke(entity, message, attempt)
        if isinstance(changed, Outcome) or self.batch.batch_id or changed.outbox[message.key].outputs:
            return changed
        return changed.finished([message.key])

    async def mark_finished(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Remove the outputs of messages, but keep their ids. Costs one request."""
        return await self.entities.update(entity, lambda current: current.finished(message_ids))

    async def evict_from(self, key: str, latest: int, *, dry_run: bool = False) -> int:
        """Remove finished entries handled up to `latest`. Costs two requests."""
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
    """Processes a message while its token exists, then deletes the token. No ids are kept.

    A token must never exist again after its message was published. So each attempt creates tokens under ids of its own,
    and one conditional write to the entity commits an attempt before any output is published. Tokens of lost attempts
    are deleted when the message is finished: each attempt registers its id in the entity before it creates tokens. They
    are created on condition that the incoming token exists, and that is deleted first, so a slow attempt creates none
    later.

    After Masternak and Pobiega, "Token-based deduplication" and "Exactly-once intuition" (exactly-once.github.io).
    Costs seven requests for a new message (five if no handler takes its outputs), two for a duplicate.
    """

    name: str = "tokens"
    tokens: TokenStore
    recipients: Recipients

    def tables(self) -> Sequence[Table]:
        """Return the tables of the entities and of the tokens."""
        return [self.table, self.tokens.table]

    async def known_elsewhere(self, entity: Entity, message: Prepared) -> Outcome | None:
        """Return the outcome of a message without a token, or `None` if its token exists. Costs one request."""
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
        """Remove the entry of a message whose token is gone, if the entry has the same token."""
        entry = entity.outbox.get(message.key)
        if entry is not None and _tokens(entry).incoming == token_of(message.envelope, self.handler.name):
            await super().forget_leftover(entity, message)

    def invoke(self, entity: Entity, message: Prepared, attempt: str) -> Entity | Outcome:
        """Call the handler, and register this attempt in the entry."""
        token = token_of(message.envelope, self.handler.name)
        changed = super().invoke(entity, message, attempt)
        if token is None or isinstance(changed, Outcome):
            return changed
        entry = changed.outbox[message.key]
        recipients = tuple(tuple(self.recipients(output.type)) for output in entry.outputs or ())
        tokens = EntryTokens(token, recipients).registered(attempt)
        return self.if_it_fits(changed.with_entry(message.key, replace(entry, tokens=tokens)), message)

    async def make_ready(self, entity: Entity, attempts: Mapping[IdKey, str]) -> Entity:
        """Register this attempt, create tokens for the outputs, and commit them, unless another attempt is committed.

        Costs one request for each message and one for the commit, or none if no handler takes the outputs. Registering
        costs one more unless `invoke` did it.
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
        """Delete the tokens of messages, then their entries and unused tokens. Costs at least two requests."""
        done = [key for key in message_ids if key in entity.outbox]
        for message_id in done:
            await self.tokens.delete(_tokens(entity.outbox[message_id]).incoming)
        return await self.forget(entity, done) if done else entity

    async def forget(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Delete the tokens of lost attempts, then the entries of messages.

        Raises `ConcurrencyConflictError` if no attempt is committed yet: the entity was read too early.
        """
        for message_id in message_ids:
            tokens = _tokens(entity.outbox[message_id])
            if not tokens.are_decided:
                raise ConcurrencyConflictError(entity.key, "the message was finished meanwhile")
            for garbage in tokens.garbage():
                await self.tokens.delete(garbage)
        await self.tokens.flush()
        return await super().forget(entity, message_ids)


def _undecided(entity: Entity, message_ids: Collection[IdKey]) -> list[IdKey]:
    """Return the messages without a committed attempt."""
    return [
        key for key in message_ids if key in entity.outbox and not _tokens(entity.outbox[key]).are_decided
    ]


def _registered(attempts: Mapping[IdKey, str], entity: Entity) -> Entity:
    """Return the entity with this attempt registered for each undecided message."""
    for key in _undecided(entity, attempts):
        entry, attempt = entity.outbox[key], attempts[key]
        if attempt not in _tokens(entry).attempts:
            entity = entity.with_entry(key, replace(entry, tokens=_tokens(entry).registered(attempt)))
    return entity


def _committed(attempts: Mapping[IdKey, str], entity: Entity) -> Entity:
    """Return the entity with this attempt committed for each undecided message."""
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
    """Keeps the ids of processed messages in a de-duplication store.

    After the commit, a message id is in the entity's outbox, then in both places, then only in the store. So the store
    must be queried *after* the entity was loaded. Otherwise both could miss an id that another attempt moves in
    between. In the right order, the conditional write fails if the id left the entity meanwhile.

    After Masternak and Pobiega, "Improving outbox" (exactly-once.github.io), last listing, which leaves an entry if an
    attempt crashes between store and entity. Here the next copy or a sweep removes it. Costs five requests for a new
    message, two for a duplicate.
    """

    name: str = "deduplication-store"
    store: DeduplicationStore

    def tables(self) -> Sequence[Table]:
        """Return the tables of the entities and of the store."""
        return [self.table, self.store.table]

    async def known_elsewhere(self, entity: Entity, message: Prepared) -> Outcome | None:
        """Return the outcome of a message whose id is in the store, or `None`. Costs one request."""
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
        """Delete the messages of one entity from the store that were added up to `latest`."""
        with one_of_many(self.store.table, key):
            return await self.store.evict(key, latest, dry_run=dry_run)
        return 0
