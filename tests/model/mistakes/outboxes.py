"""Mistakes of the algorithms with an outbox: alone, with a deduplication store, with tokens; and of their batches."""

from copy import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from eventstore import ANY_ETAG, Operation, StoreUnavailableError
from runtime.algorithms.algorithm import publish_all
from runtime.algorithms.outbox.algorithm import OutboxAlgorithm, OutboxOneByOne, TokenBased, _committed
from runtime.algorithms.outbox.algorithm import OutboxWithDeduplicationStore as WithStore
from runtime.algorithms.outbox.entity import ENTITY, Entities
from runtime.algorithms.outbox.stores import DeduplicationStore, EntryTokens, TokenStore, token_of
from runtime.messages.envelope import id_key
from runtime.messages.outcome import Status
from tests.model.calls import SteppedTable, ask, publish
from tests.model.mistakes.mistake import ALONE, ALONE_CRASH, ALONE_LOSS, Mistakes, giving, instead_of
from tests.model.scenarios.entities import OTHER, REPLICA, outbox, replicated, tokens, with_store
from tests.model.scenarios.two_passes import ATTEMPTS, BATCHES

FAMILIES, OF_BATCHES = Mistakes(), Mistakes()
mistake = FAMILIES.add

_X, _STORE, _STORE_TWICE = outbox("x"), with_store("x"), with_store("x", copies=2)
_TOKEN, _TOKEN_TWICE = tokens("x"), tokens("x", copies=2)


async def _nothing(*_: object) -> None:
    """Leave it."""


def _no(owner: Any, name: str) -> Any:
    """Make a plant that lets a coroutine do nothing."""
    return lambda patch: patch.setattr(owner, name, _nothing)


# The outbox


@mistake("outbox: stored without checking for another entity", "NoLostUpdate", outbox("x", "y"))
@mistake("store: the entity is stored without checking the ETag", "NoLostUpdate", with_store("x", "y"))
@mistake("tokens: the entity is stored without checking the ETag", "NoLostUpdate", tokens("x", "y"))
@instead_of(Entities, "store")
async def _(_: Any, self: Any, entity: Any) -> Any:
    change = Operation.insert_or_replace(ENTITY, entity.properties())
    (etag,) = await self.table.transact(entity.key, [change])
    return replace(entity, etag=etag)


@mistake("outbox: replaced without checking the ETag", "NoLostUpdate", outbox("x", "y"))
@instead_of(Entities, "store")
def _(store: Any, self: Any, entity: Any) -> Any:
    return store(self, entity if entity.etag is None else replace(entity, etag=ANY_ETAG))


@mistake("outbox: finished before it is published", "DoneWhenAcknowledged", _X, ALONE_CRASH)
@instead_of(OutboxOneByOne, "publish_outputs")
async def _(publish_outputs: Any, self: Any, entity: Any, message_ids: Any, *cause: Any) -> None:
    await self.algorithm.mark_finished(entity, message_ids)
    await publish_outputs(self, entity, message_ids, *cause)


@mistake("outbox: published before it is stored", "NoGhost", _X)
@instead_of(Entities, "store")
async def _(store: Any, self: Any, entity: Any) -> Any:
    for entry in entity.outbox.values():
        await publish_all(self.table, publish, entry.to_publish)
    return await store(self, entity)


@mistake("outbox: a lost answer is taken for success", "NoGhost", _X, ALONE_LOSS)
@instead_of(Entities, "store")
async def _(store: Any, self: Any, entity: Any) -> Any:
    try:
        return await store(self, entity)
    except StoreUnavailableError:
        return entity


@mistake("outbox: duplicates publish nothing", "DoneWhenAcknowledged", _X, ALONE_CRASH)
@instead_of(OutboxOneByOne, "attempt")
async def _(attempt: Any, self: Any, algorithm: Any, message: Any) -> Any:
    entity = await algorithm.entities.load(algorithm.entities.key(message.business_id))
    if message.key in entity.outbox:
        return algorithm.concluded(message, Status.DUPLICATE)
    return await attempt(self, algorithm, message)


# The deduplication store


@mistake("store: asked before the entity is loaded", "AtMostOneStateChange", _STORE_TWICE)
@instead_of(WithStore, "attempt")
async def _(attempt: Any, self: Any, business_id: str, deliveries: Any, *more: Any) -> Any:
    found = await self.store.find(self.entities.key(business_id), deliveries[0].key)

    async def told(*_: object) -> Any:
        return found

    early = copy(self)
    early.store = SimpleNamespace(add=self.store.add, find=told)
    return await attempt(early, business_id, deliveries, *more)


@mistake("store: removed from the entity before it is added", "AtMostOneStateChange", _STORE, ALONE_CRASH)
@instead_of(WithStore, "mark_finished")
async def _(_: Any, self: Any, entity: Any, message_ids: Any) -> Any:
    done = {key: entity.outbox[key].fingerprint for key in message_ids}
    rest = await self.forget(entity, message_ids)
    await self.store.add(entity.key, done)
    return rest


@mistake("store: stale reads", "AtMostOneStateChange", replicated())
@instead_of(SteppedTable, "get")
def _(get: Any, self: Any, partition_key: str, row_key: str) -> Any:
    return (
        ask(REPLICA, "get", partition_key, row_key)
        if self.name == OTHER
        else get(self, partition_key, row_key)
    )


mistake("store: nothing is added", "AtMostOneStateChange", _STORE_TWICE)(_no(DeduplicationStore, "add"))


@mistake("store: an entry left by a crash stays", "NoGarbage", _STORE, ALONE_CRASH)
def _(patch: pytest.MonkeyPatch) -> None:
    async def sweep_nothing(*_: object) -> int:
        return 0

    patch.setattr(WithStore, "forget_leftover", _nothing)
    patch.setattr(OutboxOneByOne, "sweep", sweep_nothing)


# Tokens


@mistake("tokens: created again, one worker and a crash", "ReceivedOnce", _TOKEN, ALONE_CRASH)
@mistake("tokens: created again, two copies", "ReceivedOnce", _TOKEN_TWICE)
@instead_of(TokenBased, "make_ready")
async def _(_: Any, self: Any, entity: Any, attempts: Any) -> Any:
    for message_id in attempts:
        entry = entity.outbox[message_id]
        await self.tokens.create(entry.tokens.incoming, entry.tokens.of_attempt("same"))
    return _committed(dict.fromkeys(attempts, "same"), entity)


@mistake("tokens: each attempt has the same ids", "ReceivedOnce", _TOKEN_TWICE)
@instead_of(TokenBased, "__init__")
def _(begin: Any, self: Any, *given: Any, **named: Any) -> None:
    begin(self, *given, **{**named, "new_id": lambda: "same"})


@mistake("tokens: no checkpoint", "ConsistentOutput", _TOKEN, ALONE_CRASH)
@instead_of(TokenBased, "make_ready")
async def _(_: Any, self: Any, entity: Any, attempts: Any) -> Any:
    for message_id, attempt in attempts.items():
        entry = entity.outbox[message_id]
        await self.tokens.create(entry.tokens.incoming, entry.tokens.of_attempt(attempt))
    return _committed(attempts, entity)


@mistake("tokens: asked before the entity is loaded", "AtMostOneStateChange", _TOKEN_TWICE)
@instead_of(TokenBased, "attempt")
async def _(attempt: Any, self: Any, business_id: str, deliveries: Any, *more: Any) -> Any:
    found = await self.tokens.exists(token_of(deliveries[0].envelope, self.handler.name))

    async def told(_: object) -> Any:
        return found

    early = copy(self)
    early.tokens = copy(self.tokens)
    early.tokens.exists = told
    return await attempt(early, business_id, deliveries, *more)


@mistake("tokens: attempts are not registered", "NoGarbage", _TOKEN, ALONE_CRASH)
@instead_of(EntryTokens, "registered")
def _(_: Any, self: Any, __: Any) -> Any:
    return self


@mistake("tokens: created though the message is finished", "NoGarbage", _TOKEN_TWICE)
@instead_of(TokenStore, "create")
async def _(_: Any, self: Any, __: Any, created: Any) -> None:
    await self.issue(created)


mistake("tokens: never deleted", "NoGarbage", _TOKEN, ALONE)(_no(TokenStore, "delete"))


@mistake("tokens: deleted before the outputs are published", "DoneWhenAcknowledged", _TOKEN, ALONE_CRASH)
@instead_of(TokenBased, "make_ready")
async def _(make_ready: Any, self: Any, entity: Any, attempts: Any) -> Any:
    ready = await make_ready(self, entity, attempts)
    for message_id in attempts:
        await self.tokens.delete(entity.outbox[message_id].tokens.incoming)
    return ready


# Batches: what belongs into the second pass, and to whom


@instead_of(OutboxAlgorithm, "attempt")
async def _finished_in_the_first_pass(attempt, self, business_id, *given, **named) -> Any:
    entity, outcomes = await attempt(self, business_id, *given, **named)
    await self.finish(business_id, [id_key(outcome.envelope.message_id) for outcome in outcomes])
    return entity, outcomes


@instead_of(OutboxAlgorithm, "invoke")
def _entries_do_not_know_their_batch(invoke: Any, self: Any, entity: Any, message: Any, attempt: str) -> Any:
    changed = invoke(self, entity, message, attempt)
    return changed.with_entry(message.key, replace(changed.outbox[message.key], batch=None))


for _what, _breaks, _scenarios, _plant in (
    ("finished in the first pass", "NoLost", ATTEMPTS, _finished_in_the_first_pass),
    ("entries do not record their batch", "ProcessedOnce", ATTEMPTS, _entries_do_not_know_their_batch),
    (
        "a batch finishes the entries of another",
        "ProcessedOnce",
        BATCHES,
        giving(OutboxAlgorithm, "_may_finish", value=True),
    ),
):
    for _family, _scenario in zip(("outbox", "store", "tokens"), _scenarios, strict=True):
        OF_BATCHES.add(f"{_family}: {_what}", _breaks, _scenario, ALONE_CRASH)(_plant)
