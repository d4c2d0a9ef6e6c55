"""Mistakes of the last hop: keys that are taken too late, kept too short, or taken away from others."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from eventstore import ANY_ETAG, Verb
from runtime.publishing.keys import DeliveryKey, Key, KeyState, RedisKeys, TableKeys
from runtime.publishing.last_hop import Delivered, IdempotentDelivery
from tests.model.calls import SteppedTable
from tests.model.mistakes.mistake import Mistake
from tests.model.redis_model import SteppedPipeline, SteppedRedis
from tests.model.scenarios.delivery import (
    HELD_IN_TURN,
    RECORDED,
    SEALED,
    SENT_ONCE,
    SENT_OR_SAID,
    at_least_once,
    at_most_once,
    in_redis,
    in_slow_redis,
)
from tests.model.world import Bounds


def _sent_first(patch: pytest.MonkeyPatch) -> None:
    at_most_once: Any = IdempotentDelivery.at_most_once

    async def send_and_register(self: Any, key: Any, name: Any, send: Any, **_: Any) -> Any:
        delivered = await self.send(send)

        async def send_nothing() -> None:
            """Leave it, as it is sent."""

        await at_most_once(self, key, name, send_nothing)
        return delivered

    patch.setattr(IdempotentDelivery, "at_most_once", send_and_register)


def _put_over_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    transact: Any = SteppedTable.transact

    async def transact_anyway(self: Any, key: Any, operations: Any) -> Any:
        anyway = [replace(each, verb=_ANYWAY.get(each.verb, each.verb)) for each in operations]
        return await transact(self, key, anyway)

    patch.setattr(SteppedTable, "transact", transact_anyway)


def _sealed_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IdempotentDelivery, "at_least_once", IdempotentDelivery.at_most_once)


def _locked_means_done(patch: pytest.MonkeyPatch) -> None:
    found: Any = IdempotentDelivery.found

    def found_and_done(self: Any, other: Key) -> Delivered:
        return found(self, other)._replace(try_again_at=None)  # type: ignore[no-any-return]

    patch.setattr(IdempotentDelivery, "found", found_and_done)


def _unlocked_by_whoever(patch: pytest.MonkeyPatch) -> None:
    delete: Any = TableKeys.delete

    async def delete_anyway(self: Any, key: DeliveryKey, found: Key) -> None:
        await delete(self, key, found._replace(etag=ANY_ETAG))

    patch.setattr(TableKeys, "delete", delete_anyway)


def _never(which: Any, patch: pytest.MonkeyPatch) -> None:
    """Let a key of some kind never be put over another."""
    put: Any = TableKeys.put

    async def put_or_leave(self: Any, key: DeliveryKey, new: Key, over: Key | None = None) -> Key | None:
        return new if over is not None and which(new) else await put(self, key, new, over)

    patch.setattr(TableKeys, "put", put_or_leave)


def _without_nx(patch: pytest.MonkeyPatch) -> None:
    shipped: Any = SteppedRedis.set

    async def set_anyway(self: Any, key: str, value: str, *, pxat: int, nx: bool = False) -> Any:
        return await shipped(self, key, value, pxat=pxat)

    patch.setattr(SteppedRedis, "set", set_anyway)


def _seconds_for_milliseconds(patch: pytest.MonkeyPatch) -> None:
    shipped: Any = SteppedRedis.set

    async def set_too_short(self: Any, key: str, value: str, *, pxat: int, nx: bool = False) -> Any:
        return await shipped(self, key, value, pxat=pxat // 1000, nx=nx)

    patch.setattr(SteppedRedis, "set", set_too_short)


def _uncompared(patch: pytest.MonkeyPatch, *, is_unlock: bool) -> None:
    """Let a key be sealed, or unlocked, whoever holds it."""
    shipped: Any = RedisKeys._change

    async def change(self: Any, key: Any, found: Key, value: str | None = None, until: int = 0) -> Any:
        if (value is None) == is_unlock:
            there = await self._redis.get(self._name(key))
            return await shipped(self, key, found._replace(etag=there), value, until)
        return await shipped(self, key, found, value, until)

    patch.setattr(RedisKeys, "_change", change)


def _unwatched(patch: pytest.MonkeyPatch) -> None:
    async def watch_nothing(self: Any, key: str) -> None:
        self._key = key

    async def execute(self: Any) -> None:
        value, until = self._change
        await self._redis.set(self._key, value, pxat=until)

    patch.setattr(SteppedPipeline, "watch", watch_nothing)
    patch.setattr(SteppedPipeline, "execute", execute)


def _unlocked_in_place_of_sealed(patch: pytest.MonkeyPatch) -> None:
    put: Any = RedisKeys.put

    async def unlock(self: Any, key: DeliveryKey, new: Key, over: Key | None = None) -> Key | None:
        if over is None:
            return await put(self, key, new)  # type: ignore[no-any-return]
        await self.delete(key, over)
        return new

    patch.setattr(RedisKeys, "put", unlock)


def _an_expired_key_counts(patch: pytest.MonkeyPatch) -> None:
    get: Any = RedisKeys.get

    async def get_sealed(self: Any, key: Any) -> Key | None:
        found: Key | None = await get(self, key)
        return found and found._replace(state=KeyState.SEALED)

    patch.setattr(RedisKeys, "get", get_sealed)


_ANYWAY = {Verb.INSERT: Verb.INSERT_OR_REPLACE}
_CALM, _CRASH, _LOSS = Bounds(), Bounds(1, 1), Bounds(2, losses=1, late_writes=False)
_R = "keys in Redis: "

MISTAKES = (
    Mistake("delivery: sent before the key is registered", _sent_first, at_most_once(), _CRASH, "SentOnce"),
    Mistake(
        "delivery: the key overwrites another",
        _put_over_whatever_is_there,
        at_most_once(2),
        _CALM,
        "SentOnce",
    ),
    Mistake("delivery: sealed before it is sent", _sealed_first, at_least_once(), _CRASH, "SentOrSaid"),
    Mistake(
        "delivery: a copy that finds a lock is acknowledged",
        _locked_means_done,
        at_least_once(2, [SENT_OR_SAID]),
        Bounds(2, 2),
        "SentOrSaid",
    ),
    Mistake(
        "delivery: unlocked by a former holder",
        _unlocked_by_whoever,
        at_least_once(2),
        _LOSS,
        "UnlockedByItsHolder",
    ),
    Mistake(
        "delivery: its end is not recorded",
        partial(_never, lambda new: new.end is not None),
        at_most_once(2, [RECORDED]),
        _CALM,
        "Recorded",
    ),
    Mistake(
        "delivery: never sealed",
        partial(_never, lambda new: new.state is KeyState.SEALED),
        at_least_once(invariants=[SEALED]),
        _CALM,
        "NoGarbage",
    ),
    Mistake(f"{_R}put over another", _without_nx, at_most_once(2, keys=in_redis), _CALM, "SentOnce"),
    Mistake(
        f"{_R}they expire in seconds for milliseconds",
        _seconds_for_milliseconds,
        at_most_once(2, [SENT_ONCE], in_redis),
        _CALM,
        "SentOnce",
    ),
    Mistake(
        f"{_R}sealed by a former holder",
        partial(_uncompared, is_unlock=False),
        at_least_once(2, keys=in_redis),
        _CALM,
        "ChangedByItsHolder",
    ),
    Mistake(
        f"{_R}unlocked by a former holder",
        partial(_uncompared, is_unlock=True),
        at_least_once(2, keys=in_redis),
        _LOSS,
        "ChangedByItsHolder",
    ),
    Mistake(
        f"{_R}compared and put over in two commands",
        _unwatched,
        at_least_once(2, [HELD_IN_TURN], in_slow_redis),
        Bounds(2, 1),
        "HeldInTurn",
    ),
    Mistake(
        f"{_R}unlocked in place of sealed",
        _unlocked_in_place_of_sealed,
        at_least_once(keys=in_redis),
        _CALM,
        "NoGarbage",
    ),
    Mistake(
        f"{_R}a lock is taken for a seal",
        _an_expired_key_counts,
        at_least_once(2, keys=in_redis),
        _CRASH,
        "SentOrSaid",
    ),
)
