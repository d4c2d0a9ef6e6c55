"""Mistakes of the last hop: keys that are taken too late, kept too short, or taken away from others."""

from dataclasses import replace
from typing import Any

from eventstore import ANY_ETAG, Verb
from runtime.publishing.last_hop import IdempotentDelivery, KeyState, RedisKeys, TableKeys
from tests.model.calls import SteppedTable
from tests.model.mistakes.mistake import ALONE_CRASH, Mistakes, instead_of
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

MISTAKES = Mistakes()
mistake = MISTAKES.add

_LOSS = Bounds(2, losses=1, late_writes=False)
_R = "keys in Redis: "


@mistake("delivery: sent before the key is registered", "SentOnce", at_most_once(), ALONE_CRASH)
@instead_of(IdempotentDelivery, "at_most_once")
async def _(at_most_once: Any, self: Any, key: Any, name: Any, send: Any, **_: Any) -> Any:
    delivered = await self.send(send)

    async def send_nothing() -> None: ...

    await at_most_once(self, key, name, send_nothing)
    return delivered


@mistake("delivery: the key overwrites another", "SentOnce", at_most_once(2))
@instead_of(SteppedTable, "transact")
def _(transact: Any, self: Any, key: Any, operations: Any) -> Any:
    anyway = {Verb.INSERT: Verb.INSERT_OR_REPLACE}
    return transact(self, key, [replace(each, verb=anyway.get(each.verb, each.verb)) for each in operations])


@mistake("delivery: sealed before it is sent", "SentOrSaid", at_least_once(), ALONE_CRASH)
@instead_of(IdempotentDelivery, "at_least_once")
def _(_: Any, self: Any, *given: Any, **named: Any) -> Any:
    return self.at_most_once(*given, **named)


@mistake(
    "delivery: a copy that finds a lock is acknowledged",
    "SentOrSaid",
    at_least_once(2, [SENT_OR_SAID]),
    Bounds(2, 2),
)
@instead_of(IdempotentDelivery, "found")
def _(found: Any, *given: Any) -> Any:
    return found(*given)._replace(try_again_at=None)


@mistake("delivery: unlocked by a former holder", "UnlockedByItsHolder", at_least_once(2), _LOSS)
@instead_of(TableKeys, "delete")
def _(delete: Any, self: Any, key: Any, found: Any) -> Any:
    return delete(self, key, found._replace(etag=ANY_ETAG))


@mistake("delivery: its end is not recorded", "Recorded", at_most_once(2, [RECORDED]))
@instead_of(TableKeys, "put")
async def _(put: Any, self: Any, key: Any, new: Any, over: Any = None) -> Any:
    return new if over is not None and new.end is not None else await put(self, key, new, over)


@mistake("delivery: never sealed", "NoGarbage", at_least_once(invariants=[SEALED]))
@instead_of(TableKeys, "put")
async def _(put: Any, self: Any, key: Any, new: Any, over: Any = None) -> Any:
    is_seal = over is not None and new.state is KeyState.SEALED
    return new if is_seal else await put(self, key, new, over)


@mistake(f"{_R}put over another", "SentOnce", at_most_once(2, keys=in_redis))
@instead_of(SteppedRedis, "set")
def _(shipped: Any, self: Any, key: str, value: str, *, pxat: int, nx: bool = False) -> Any:
    return shipped(self, key, value, pxat=pxat)


@mistake(f"{_R}they expire in seconds for milliseconds", "SentOnce", at_most_once(2, [SENT_ONCE], in_redis))
@instead_of(SteppedRedis, "set")
def _(shipped: Any, self: Any, key: str, value: str, *, pxat: int, nx: bool = False) -> Any:
    return shipped(self, key, value, pxat=pxat // 1000, nx=nx)


@mistake(f"{_R}sealed by a former holder", "ChangedByItsHolder", at_least_once(2, keys=in_redis))
@instead_of(RedisKeys, "_change")
async def _(change: Any, self: Any, key: Any, found: Any, value: Any = None, until: int = 0) -> Any:
    if value is not None:
        found = found._replace(etag=await self._redis.get(self._name(key)))
    return await change(self, key, found, value, until)


@mistake(f"{_R}unlocked by a former holder", "ChangedByItsHolder", at_least_once(2, keys=in_redis), _LOSS)
@instead_of(RedisKeys, "_change")
async def _(change: Any, self: Any, key: Any, found: Any, value: Any = None, until: int = 0) -> Any:
    if value is None:
        found = found._replace(etag=await self._redis.get(self._name(key)))
    return await change(self, key, found, value, until)


@mistake(
    f"{_R}compared and put over in two commands",
    "HeldInTurn",
    at_least_once(2, [HELD_IN_TURN], in_slow_redis),
    Bounds(2, 1),
)
def _(patch: Any) -> None:
    async def watch_nothing(self: Any, key: str) -> None:
        self._key = key

    async def execute(self: Any) -> None:
        value, until = self._change
        await self._redis.set(self._key, value, pxat=until)

    patch.setattr(SteppedPipeline, "watch", watch_nothing)
    patch.setattr(SteppedPipeline, "execute", execute)


@mistake(f"{_R}unlocked in place of sealed", "NoGarbage", at_least_once(keys=in_redis))
@instead_of(RedisKeys, "put")
async def _(put: Any, self: Any, key: Any, new: Any, over: Any = None) -> Any:
    if over is None:
        return await put(self, key, new)
    await self.delete(key, over)
    return new


@mistake(f"{_R}a lock is taken for a seal", "SentOrSaid", at_least_once(2, keys=in_redis), ALONE_CRASH)
@instead_of(RedisKeys, "get")
async def _(get: Any, self: Any, key: Any) -> Any:
    found = await get(self, key)
    return found and found._replace(state=KeyState.SEALED)
