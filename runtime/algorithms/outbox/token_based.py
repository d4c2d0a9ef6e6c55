"""Token-based de-duplication: a message is processed only while its token exists, and processing it deletes the token.

No evidence of processed messages is kept, so none has to be evicted. A token must never be created again once its
message was dispatched. So tokens are created under ids new for each attempt, and a conditional write (the checkpoint)
decides whose tokens the messages carry, before any of them is dispatched.

An attempt's id is registered in the entity before its tokens are created, and once the message is finished the tokens
of attempts that lost are deleted. They are created on the condition that the token of the incoming message is still
there, and that one is deleted first: a slow attempt cannot create tokens after others have cleaned up.

After Masternak and Pobiega, "Token-based deduplication" and "Exactly-once intuition" (exactly-once.github.io).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial

from eventstore import ConcurrencyConflictError, Table
from handlers.app import HandlerDefinition
from runtime.algorithms.algorithm import AT_ONCE, Publish
from runtime.algorithms.fresh_ids import NewId, fresh_id
from runtime.algorithms.outbox.entities import Entities
from runtime.algorithms.outbox.entity import Entity
from runtime.algorithms.outbox.entry import Entry
from runtime.algorithms.outbox.entry_tokens import EntryTokens
from runtime.algorithms.outbox.invoking import concluded, id_reused, if_it_fits, invoke, refused
from runtime.algorithms.outbox.tokens import TokenStore, token_of
from runtime.algorithms.publishing import dispatch
from runtime.clock import Clock, cut_off, system_clock
from runtime.messages.copies import is_copy
from runtime.messages.message_ids import IdKey
from runtime.messages.outcome import Outcome, Output, Reason, Status
from runtime.messages.parsing import Prepared
from runtime.retries import RetryPolicy, count_of_each, until_undisturbed

Recipients = Callable[[str], Collection[str]]
"""Names the handlers that take messages of a type and process them by tokens; what goes to none needs no token."""

_NO_TOKEN = "It carries no token: issue one before it is sent (`consistent tokens issue`, `Processor.issue`)."  # noqa: S105 - a sentence


class TokenBased:
    """Processes the messages of one handler while their tokens exist.

    Costs seven requests for a new message (five when no handler takes what it sends), two for a duplicate.
    """

    def __init__(
        self,
        table: Table,
        tokens: TokenStore,
        handler: HandlerDefinition,
        publish: Publish,
        recipients: Recipients,
        *,
        clock: Clock = system_clock,
        new_id: NewId = fresh_id,
        retries: RetryPolicy | None = None,
    ) -> None:
        self.tokens = tokens
        self.handler = handler
        self.publish = publish
        self.recipients = recipients
        self.clock = clock
        self.new_id = new_id
        self.retries = (retries or RetryPolicy()).beside(table)
        self.entities = Entities(table, handler, "tokens", self.retries)

    async def process(self, message: Prepared) -> Outcome:
        """Handle a message, publish its outputs, and return what became of it and what was published."""
        refusal = self.entities.refusal(message)
        if refusal is not None:
            return refusal
        return await until_undisturbed(self.retries, partial(self.attempt, message))

    async def attempt(self, message: Prepared) -> Outcome:
        """Load, check the token, invoke, store, create tokens, checkpoint, dispatch, delete the token, clean up."""
        entity = await self.entities.load(self.entities.key(message.business_id))
        known = await self.known_elsewhere(entity, message)
        if known is not None:
            return await self.return_early(entity, message, known)
        status, attempt = Status.DUPLICATE, self.new_id()
        if message.key not in entity.outbox:
            changed = self.invoke(entity, message, None, attempt)
            if isinstance(changed, Outcome):
                return changed
            entity = await self.entities.store(changed)
            status = Status.PROCESSED
        entry = entity.outbox[message.key]
        if not is_copy(message, entry.fingerprint):
            return id_reused(self.handler, message)
        outputs = await self.finish(entity, message.key, attempt)
        return concluded(self.handler, message, status, replace(entry, outputs=outputs))

    async def known_elsewhere(self, entity: Entity, message: Prepared) -> Outcome | None:
        """Return the outcome of a message without a token, None when its token is there. Costs one request.

        A second token of a message that is in the outbox is deleted, so that no copy comes with it again.
        """
        token = token_of(message.envelope, self.handler.name)
        if token is None:
            return refused(self.handler, message, Reason.INVALID_ENVELOPE, _NO_TOKEN)
        if not await self.tokens.exists(token):
            return concluded(self.handler, message, Status.DUPLICATE)
        entry = entity.outbox.get(message.key)
        if entry is not None and _tokens(entry).incoming != token:
            await self.entities.table.barrier()
            await self.tokens.delete(token)
        return None

    async def return_early(self, entity: Entity, message: Prepared, known: Outcome) -> Outcome:
        """Leave a message alone whose token is gone: its outputs were dispatched before. Remove a leftover entry."""
        entry = entity.outbox.get(message.key)
        if entry is not None and _tokens(entry).incoming == token_of(message.envelope, self.handler.name):
            await self.clean_up(entity, [message.key])
        return known

    def invoke(self, entity: Entity, message: Prepared, batch: str | None, attempt: str) -> Entity | Outcome:
        """Handle a message, and register the id of this attempt with what it did."""
        token = token_of(message.envelope, self.handler.name)
        changed = invoke(self.handler, entity, message, self.clock(), batch)
        if token is None or isinstance(changed, Outcome):
            return changed
        entry = changed.outbox[message.key]
        recipients = tuple(tuple(self.recipients(output.type)) for output in entry.outputs or ())
        tokens = EntryTokens(token, recipients).registered(attempt)
        return if_it_fits(
            self.handler, changed.with_entry(message.key, replace(entry, tokens=tokens)), message
        )

    async def finish(self, entity: Entity, message_id: IdKey, attempt: str) -> tuple[Output, ...]:
        """Do what is left to do for a message, and return the outputs that were dispatched."""
        entity = await self.make_ready(entity, {message_id: attempt})
        entry = entity.outbox.get(message_id)
        if entry is None:
            return ()
        outputs = self.outputs(entry)
        await dispatch(self.entities.table, self.publish, outputs)
        if not entry.batch:
            await self.settle(entity, [message_id])
        return outputs

    async def make_ready(self, entity: Entity, attempts: Mapping[IdKey, str]) -> Entity:
        """Create the tokens of messages' outputs and commit them, unless those of other attempts are.

        `attempts` are the ids of this attempt, by the messages. Those that are not registered yet are, first of all.
        """
        entity = await self.entities.update(entity, partial(_registered, attempts))
        unsettled = {key: attempts[key] for key in _unsettled(entity, attempts)}
        if unsettled:
            await self.entities.table.barrier()
        for message_id, attempt in unsettled.items():
            tokens = _tokens(entity.outbox[message_id])
            await self.tokens.create(tokens.incoming, tokens.of_attempt(attempt))
        if unsettled:
            await self.tokens.flush()
        return await self.entities.update(entity, partial(_committed, unsettled))

    def outputs(self, entry: Entry) -> tuple[Output, ...]:
        """Return what an entry has to send, with the names of the tokens that count."""
        return _tokens(entry).put_into(entry.outputs or ())

    async def settle(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Delete the tokens of messages that were dispatched, and clean up after the attempts that lost."""
        done = [key for key in message_ids if key in entity.outbox]
        for message_id in done:
            await self.tokens.delete(_tokens(entity.outbox[message_id]).incoming)
        return await self.clean_up(entity, done)

    async def clean_up(self, entity: Entity, message_ids: Collection[IdKey]) -> Entity:
        """Delete the tokens of attempts that lost, and then the entries of messages whose own tokens are gone.

        Raises `ConcurrencyConflictError` when it is not known yet who lost: then the entity was read too early.
        """
        for message_id in message_ids:
            tokens = _tokens(entity.outbox[message_id])
            if not tokens.are_settled:
                raise ConcurrencyConflictError(entity.key, "its message was finished since it was read")
            for garbage in tokens.garbage():
                await self.tokens.delete(garbage)
        await self.tokens.flush()
        return await self.entities.update(entity, lambda current: current.without(message_ids))

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        """Finish what attempts that died have left, and return of how many messages."""
        latest = cut_off(self.clock, older_than)
        return await count_of_each(
            self.entities.unfinished(), self.retries, lambda key: self.sweep_entity(key, latest)
        )

    async def sweep_entity(self, key: str, latest: int) -> int:
        """Finish the messages of one entity that were handled at a time or before, and return how many."""
        pending = (await self.entities.load(key)).pending_until(latest)
        for message_id in pending:
            entity = await self.entities.load(key)
            entry = entity.outbox.get(message_id)
            if entry is None:
                continue
            if await self.tokens.exists(_tokens(entry).incoming):
                await self.finish(entity, message_id, self.new_id())
            else:
                await self.clean_up(entity, [message_id])
        return len(pending)


def _unsettled(entity: Entity, message_ids: Collection[IdKey]) -> list[IdKey]:
    """Return the messages of whose outputs it is not decided yet which tokens they carry."""
    return [
        key for key in message_ids if key in entity.outbox and not _tokens(entity.outbox[key]).are_settled
    ]


def _registered(attempts: Mapping[IdKey, str], entity: Entity) -> Entity:
    """Return the entity with one more attempt to give tokens for each message, unless that is settled."""
    for key in _unsettled(entity, attempts):
        entry = entity.outbox[key]
        if attempts[key] not in _tokens(entry).attempts:
            entity = entity.with_entry(key, replace(entry, tokens=_tokens(entry).registered(attempts[key])))
    return entity


def _committed(attempts: Mapping[IdKey, str], entity: Entity) -> Entity:
    """Return the entity with the tokens of these attempts, unless it has those of others."""
    for key in _unsettled(entity, attempts):
        entry = entity.outbox[key]
        entity = entity.with_entry(key, replace(entry, tokens=_tokens(entry).committing(attempts[key])))
    return entity


def _tokens(entry: Entry) -> EntryTokens:
    if entry.tokens is None:
        raise AssertionError("Entries are written with their tokens.")
    return entry.tokens
