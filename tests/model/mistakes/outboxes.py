"""Mistakes of the outbox, without a de-duplication store and with one."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from eventstore import ANY_ETAG, Operation, Row, StoreUnavailableError
from runtime.algorithms.algorithm import publish_all
from runtime.algorithms.outbox.algorithm import OutboxOneByOne
from runtime.algorithms.outbox.entity import ENTITY, Entities
from runtime.algorithms.outbox.stores import DeduplicationStore
from runtime.algorithms.outbox.variants import OutboxWithDeduplicationStore as WithStore
from runtime.messages.outcome import Status
from tests.model.calls import SteppedTable, ask, publish
from tests.model.mistakes.mistake import Mistake
from tests.model.scenarios.deduplication_store import REPLICA, replicated, with_store
from tests.model.scenarios.entities import OTHER
from tests.model.scenarios.outbox import outbox
from tests.model.world import Bounds


def store_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    """Let everybody overwrite what others wrote since he read."""

    async def store(self: Any, entity: Any) -> Any:
        change = Operation.insert_or_replace(ENTITY, entity.properties())
        (etag,) = await self.table.transact(entity.key, [change])
        return replace(entity, etag=etag)

    patch.setattr(Entities, "store", store)


def _replace_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    store: Any = Entities.store

    async def store_anyway(self: Any, entity: Any) -> Any:
        return await store(self, entity if entity.etag is None else replace(entity, etag=ANY_ETAG))

    patch.setattr(Entities, "store", store_anyway)


def no_answer_means_stored(patch: pytest.MonkeyPatch) -> None:
    """Take a write that timed out for done."""
    store: Any = Entities.store

    async def store_surely(self: Any, entity: Any) -> Any:
        try:
            return await store(self, entity)
        except StoreUnavailableError:
            return entity

    patch.setattr(Entities, "store", store_surely)


def _finished_first(patch: pytest.MonkeyPatch) -> None:
    publish_outputs: Any = OutboxOneByOne.publish_outputs

    async def finish_and_publish(self: Any, entity: Any, message_ids: Any) -> None:
        await self.algorithm.mark_finished(entity, message_ids)
        await publish_outputs(self, entity, message_ids)

    patch.setattr(OutboxOneByOne, "publish_outputs", finish_and_publish)


def _published_first(patch: pytest.MonkeyPatch) -> None:
    store: Any = Entities.store

    async def publish_and_store(self: Any, entity: Any) -> Any:
        for entry in entity.outbox.values():
            await publish_all(self.table, publish, entry.to_publish)
        return await store(self, entity)

    patch.setattr(Entities, "store", publish_and_store)


def _duplicates_are_silent(patch: pytest.MonkeyPatch) -> None:
    attempt: Any = OutboxOneByOne.attempt

    async def attempt_new(self: Any, algorithm: Any, message: Any) -> Any:
        entity = await algorithm.entities.load(algorithm.entities.key(message.business_id))
        if message.key in entity.outbox:
            return algorithm.concluded(message, Status.DUPLICATE)
        return await attempt(self, algorithm, message)

    patch.setattr(OutboxOneByOne, "attempt", attempt_new)


def _store_before_entity(patch: pytest.MonkeyPatch) -> None:
    attempt: Any = WithStore.attempt

    async def attempt_late(self: Any, business_id: str, deliveries: Any, *more: Any) -> Any:
        found = await self.store.find(self.entities.key(business_id), deliveries[0].key)
        early = copy(self)
        early.store = _Told(self.store, found)
        return await attempt(early, business_id, deliveries, *more)

    patch.setattr(WithStore, "attempt", attempt_late)


class _Told:
    """A store that was asked before."""

    def __init__(self, store: Any, found: bytes | None) -> None:
        self.add = store.add
        self._found = found

    async def find(self, *_: object) -> bytes | None:
        return self._found


def _removed_before_it_is_added(patch: pytest.MonkeyPatch) -> None:
    async def mark_finished(self: Any, entity: Any, message_ids: Any) -> Any:
        done = {key: entity.outbox[key].fingerprint for key in message_ids}
        rest = await self.forget(entity, message_ids)
        await self.store.add(entity.key, done)
        return rest

    patch.setattr(WithStore, "mark_finished", mark_finished)


def _never_added(patch: pytest.MonkeyPatch) -> None:
    async def add(*_: object) -> None:
        """Remember nothing."""

    patch.setattr(DeduplicationStore, "add", add)


def _leftovers_stay(patch: pytest.MonkeyPatch) -> None:
    async def leave_it(*_: object) -> None:
        """Remove nothing."""

    async def sweep_nothing(*_: object) -> int:
        return 0

    patch.setattr(WithStore, "forget_leftover", leave_it)
    patch.setattr(OutboxOneByOne, "sweep", sweep_nothing)


def _stale_reads(patch: pytest.MonkeyPatch) -> None:
    get: Any = SteppedTable.get

    async def get_from_replica(self: Any, partition_key: str, row_key: str) -> Row | None:
        if self.name != OTHER:
            row: Row | None = await get(self, partition_key, row_key)
        else:
            row = await ask(REPLICA, "get", partition_key, row_key)
        return row

    patch.setattr(SteppedTable, "get", get_from_replica)


_CALM, _CRASH, _LOSS = Bounds(), Bounds(1, 1), Bounds(1, losses=1, late_writes=False)

OUTBOX = (
    Mistake(
        "outbox: stored without checking for another entity",
        store_whatever_is_there,
        outbox("x", "y"),
        _CALM,
        "NoLostUpdate",
    ),
    Mistake(
        "outbox: replaced without checking the ETag",
        _replace_whatever_is_there,
        outbox("x", "y"),
        _CALM,
        "NoLostUpdate",
    ),
    Mistake(
        "outbox: finished before it is published",
        _finished_first,
        outbox("x"),
        _CRASH,
        "DoneWhenAcknowledged",
    ),
    Mistake("outbox: published before it is stored", _published_first, outbox("x"), _CALM, "NoGhost"),
    Mistake(
        "outbox: a lost answer is taken for success", no_answer_means_stored, outbox("x"), _LOSS, "NoGhost"
    ),
    Mistake(
        "outbox: duplicates publish nothing",
        _duplicates_are_silent,
        outbox("x"),
        _CRASH,
        "DoneWhenAcknowledged",
    ),
)

_TWICE = with_store("x", copies=2)

DEDUPLICATION_STORE = (
    Mistake(
        "store: asked before the entity is loaded",
        _store_before_entity,
        _TWICE,
        _CALM,
        "AtMostOneStateChange",
    ),
    Mistake(
        "store: removed from the entity before it is added",
        _removed_before_it_is_added,
        with_store("x"),
        _CRASH,
        "AtMostOneStateChange",
    ),
    Mistake("store: stale reads", _stale_reads, replicated(), _CALM, "AtMostOneStateChange"),
    Mistake(
        "store: the entity is stored without checking the ETag",
        store_whatever_is_there,
        with_store("x", "y"),
        _CALM,
        "NoLostUpdate",
    ),
    Mistake("store: nothing is added", _never_added, _TWICE, _CALM, "AtMostOneStateChange"),
    Mistake("store: an entry left by a crash stays", _leftovers_stay, with_store("x"), _CRASH, "NoGarbage"),
)
