"""Delivery: copies of one message on their way to a customer, over a last hop that takes part in no transaction.

A copy that finds the lock of another waits until it has expired, whatever the other does meanwhile. Keys are in a table
or in Redis, which has a clock of its own: it shows what the clock of the caller shows, so that keys expire there, or is
behind, so that a key which has expired for its users is still there, and is put over.
"""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count, groupby
from typing import Any, NamedTuple, cast

from redis.asyncio import Redis

from eventstore import ANY_ETAG, Operation, Row, StoreUnavailableError, Verb
from runtime.publishing.last_hop import (
    DeliveryKey,
    IdempotentDelivery,
    Key,
    Keys,
    KeyState,
    RedisKeys,
    TableKeys,
    read_key,
)
from runtime.publishing.publisher import DeliverySettings, Result
from tests.model.book import Handled
from tests.model.calls import REDIS, SteppedTable, publish
from tests.model.contents import Rows, Snapshot
from tests.model.facts import Invariant, Scenario, View, count_of
from tests.model.histories import Job
from tests.model.mistakes import ALONE_CRASH, Mistakes, instead_of
from tests.model.processes import Process
from tests.model.redis_model import CHANGED, SteppedPipeline, SteppedRedis
from tests.model.scenarios.state_based import PATIENCE
from tests.model.world import Bounds

KEYS = "keys"
UNLOCKED = "unlocked"
"""A row beside the keys of a table: which delivery a key was deleted for that somebody unlocked last."""
_CUSTOMER, _MESSAGE = "17", "m"
_AT_MOST_ONCE = DeliverySettings()
_AT_LEAST_ONCE = DeliverySettings(frozenset({_CUSTOMER}), lock_limit=timedelta(hours=1))

OpenKeys = Callable[[Process], Keys]


class Sent(NamedTuple):
    """What was sent: by which process, and how often it had tried before."""

    process: str
    before: int


class _Table(SteppedTable):
    unlocks = ""

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> Any:
        if operations[0].verb is Verb.DELETE:
            note = Operation.insert_or_replace(UNLOCKED, {"Holder": self.unlocks})
            operations = [*operations, note]
        return await super().transact(partition_key, operations)


class _TableKeys(TableKeys):
    """Keys that note with each that is deleted for whom."""

    async def delete(self, key: DeliveryKey, found: Key) -> None:
        cast("_Table", self.table).unlocks = found.holder
        await super().delete(key, found)


class _RedisKeys(RedisKeys):
    """Keys that note with each that is changed what it was taken for."""

    async def _change(self, key: DeliveryKey, found: Key, value: str | None = None, until: int = 0) -> bool:
        cast("SteppedRedis", self._redis).told = found.etag
        return await super()._change(key, found, value, until)


def in_table(_: Process) -> Keys:
    return _TableKeys(_Table(KEYS))


def in_redis(process: Process) -> Keys:
    """Open keys in a Redis whose clock shows what that of the caller shows."""
    return _RedisKeys(cast("Redis", SteppedRedis(lambda: process.now)), KEYS)


def in_slow_redis(_: Process) -> Keys:
    return _RedisKeys(cast("Redis", SteppedRedis(None)), KEYS)


_WHERE = {
    in_table: "",
    in_redis: " with keys in Redis",
    in_slow_redis: " with keys in Redis, its clock behind",
}


def _committed(snapshot: Snapshot) -> Mapping[Hashable, Any]:
    """Return who holds the key, and whether it is locked or sealed."""
    key = _key(snapshot)
    return {} if key is None else {"key": (key.holder, key.state)}


def at_least_once(copies=1, invariants=None, keys=in_table) -> Scenario:
    """Return the scenario of a customer to whom a message is sent at least once."""
    held = (*AT_LEAST_ONCE, UNLOCKED_BY_ITS_HOLDER if keys is in_table else CHANGED_BY_ITS_HOLDER)
    return _deliveries("at least once", _AT_LEAST_ONCE, copies, invariants or held, keys)


def at_most_once(copies=1, invariants=None, keys=in_table) -> Scenario:
    """Return the scenario of a customer to whom a message is sent at most once."""
    return _deliveries("at most once", _AT_MOST_ONCE, copies, invariants or AT_MOST_ONCE, keys)


def _deliveries(promise, settings, copies, invariants, keys) -> Scenario:
    name = f"delivery {promise}{_WHERE[keys]}: {count_of(copies)}"
    return Scenario(name, [Job("m", partial(_deliver, settings, keys), copies)], invariants, _committed)


async def _deliver(settings: DeliverySettings, keys: OpenKeys, process: Process) -> Handled:
    """Deliver the message until it is known how it ended, and say how."""
    delivery = IdempotentDelivery(
        keys(process),
        settings,
        is_transient=lambda error: isinstance(error, StoreUnavailableError),
        clock=process.clock,
        new_id=process.draw_id,
        retries=PATIENCE,
    )
    for before in count():
        send = partial(publish, Sent(process.name, before))
        done = await delivery.deliver(_CUSTOMER, _MESSAGE, send)
        if done.is_done:
            return Handled((), (done.end.value,))
        process.wait_until(done.try_again_at or 0)
    raise AssertionError("Nobody counts so far.")


def _sent_twice(view: View) -> str | None:
    sent = len(view.facts.published)
    return f"it was sent {sent} times" if sent > 1 else None


def _neither(view: View) -> str | None:
    """Say that all is done, and it was not sent, nor does the key say why."""
    key = _key(view.snapshot)
    if not view.is_quiescent or view.facts.published or (key is not None and key.end == Result.NOT_SENT):
        return None
    return "it was not sent, and nothing says so"


def _unrecorded(view: View) -> str | None:
    """Say that the delivery that sealed the key was acknowledged, and the key does not say how it ended."""
    ends = {end for done in view.facts.done for end in done.result.statuses} - {Result.FILTERED.value}
    key = _key(view.snapshot)
    said = None if key is None else key.end
    return None if not ends or said in ends else f"the key does not say {min(ends)}, but {said or 'nothing'}"


def _taken_away(view: View) -> str | None:
    """Say that the key is gone, and was unlocked for another than the one who held it last."""
    holders = [holder for _, (holder, _) in view.facts.committed]
    if not holders or _key(view.snapshot) is not None:
        return None
    unlocked = str(_rows(view.snapshot)[UNLOCKED].properties["Holder"])
    return None if unlocked == holders[-1] else f"{unlocked} unlocked what {holders[-1]} holds"


def _not_its_own(view: View) -> str | None:
    """Say that a key was changed that was another than the one that it was taken for."""
    change = _rows(view.snapshot).get(CHANGED)
    if change is None or change.properties["Found"] == change.properties["Told"]:
        return None
    return f"{change.properties['Told']!r} changed what was {change.properties['Found']!r}"


def _held_again(view: View) -> str | None:
    """Say that a delivery holds the key which another has held since it did: no delivery takes the key twice."""
    holders = [holder for holder, _ in groupby(holder for _, (holder, _) in view.facts.committed)]
    again = [holder for at, holder in enumerate(holders) if holder in holders[:at]]
    return f"{again[0]} holds what another has held since" if again else None


def _not_sealed(view: View) -> str | None:
    key = _key(view.snapshot)
    is_sealed = key is not None and key.state is KeyState.SEALED
    return "all is done, and it is not sealed" if view.is_quiescent and not is_sealed else None


def _key(snapshot: Snapshot) -> Key | None:
    found = [row for key, row in _rows(snapshot).items() if key not in (UNLOCKED, CHANGED)]
    return _read(found[0]) if found else None


def _read(row: Row) -> Key:
    if row.partition_key != REDIS:
        return read_key(row)
    state, *said = json.loads(str(row.properties["Value"]))
    return Key(KeyState(state), *said)


def _rows(snapshot: Snapshot) -> Rows:
    partitions = snapshot.tables.get(KEYS) or snapshot.tables.get(REDIS) or {}
    return next(iter(partitions.values()), {})


SENT_ONCE = Invariant("SentOnce", _sent_twice)
SENT_OR_SAID = Invariant("SentOrSaid", _neither)
RECORDED = Invariant("Recorded", _unrecorded)
UNLOCKED_BY_ITS_HOLDER = Invariant("UnlockedByItsHolder", _taken_away)
CHANGED_BY_ITS_HOLDER = Invariant("ChangedByItsHolder", _not_its_own)
HELD_IN_TURN = Invariant("HeldInTurn", _held_again)
"""Without lost answers: a request that takes effect late may put a key of a delivery that has ended."""
SEALED = Invariant("NoGarbage", _not_sealed)

AT_MOST_ONCE = (SENT_ONCE, RECORDED)
AT_LEAST_ONCE = (SENT_OR_SAID, SEALED)
IN_TURN = (*AT_LEAST_ONCE, CHANGED_BY_ITS_HOLDER, HELD_IN_TURN)


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
