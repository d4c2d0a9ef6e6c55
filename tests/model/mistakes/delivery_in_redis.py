"""Mistakes of keys in Redis: scripts that do not look whose key it is, keys put over others or expired too early."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.algorithms.last_hop.keys import Key, KeyState
from runtime.delivery import redis_keys
from runtime.delivery.redis_keys import RedisKeys
from tests.model.mistakes.mistake import Mistake
from tests.model.redis_model import SteppedRedis
from tests.model.scenarios.delivery import SENT_ONCE
from tests.model.scenarios.delivery_in_redis import HELD_IN_TURN, at_least_once, at_most_once
from tests.model.world import Bounds

_IS_WHAT_WAS_READ = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end\n"
_IS_THE_HOLDER = "if holder ~= ARGV[1] then return 0 end\n"


def _without(script: str, line: str) -> Any:
    def plant(patch: pytest.MonkeyPatch) -> None:
        shipped: str = getattr(redis_keys, script)
        assert line in shipped
        patch.setattr(redis_keys, script, shipped.replace(line, ""))

    return plant


def _put_over_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    shipped: Any = SteppedRedis.set

    async def set_anyway(
        self: Any, key: str, value: str, *, nx: bool = False, pxat: int | None = None
    ) -> Any:
        return await shipped(self, key, value, pxat=pxat)

    patch.setattr(SteppedRedis, "set", set_anyway)


def _seconds_for_milliseconds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(redis_keys, "_milliseconds", lambda microseconds: microseconds // 1_000_000)


def _read_then_put_over(patch: pytest.MonkeyPatch) -> None:
    async def replace(self: Any, name: str, old: str, new: str, expires_at: int) -> bool:
        redis = self._redis
        if await redis.get(name) != old:
            return False
        return bool(await redis.set(name, new, pxat=redis_keys._milliseconds(expires_at)))

    patch.setattr(RedisKeys, "_replace", replace)


def _unlocked_in_place_of_sealed(patch: pytest.MonkeyPatch) -> None:
    end: Any = RedisKeys.end

    async def unlock(self: Any, key: Any, held: Any, _: Any, *given: Any) -> Any:
        return await end(self, key, held, None, *given)

    patch.setattr(RedisKeys, "end", unlock)


def _an_expired_key_counts(patch: pytest.MonkeyPatch) -> None:
    get: Any = RedisKeys.get

    async def get_sealed(self: Any, key: Any) -> Key | None:
        found: Key | None = await get(self, key)
        return found and found._replace(state=KeyState.SEALED)

    patch.setattr(RedisKeys, "get", get_sealed)


_CALM, _CRASH = Bounds(), Bounds(1, 1)
_NAME = "keys in Redis: "

MISTAKES = (
    Mistake(f"{_NAME}put over another", _put_over_whatever_is_there, at_most_once(2), _CALM, "SentOnce"),
    Mistake(
        f"{_NAME}they expire in seconds for milliseconds",
        _seconds_for_milliseconds,
        at_most_once(2, [SENT_ONCE]),
        _CALM,
        "SentOnce",
    ),
    Mistake(
        f"{_NAME}sealed by a former holder",
        _without("_REPLACE", _IS_WHAT_WAS_READ),
        at_least_once(2),
        _CALM,
        "ChangedByItsHolder",
    ),
    Mistake(
        f"{_NAME}unlocked by a former holder",
        _without("_DELETE", _IS_WHAT_WAS_READ),
        at_least_once(2),
        Bounds(2, losses=1, late_writes=False),
        "ChangedByItsHolder",
    ),
    Mistake(
        f"{_NAME}the end of a delivery is added to the key of another",
        _without("_RECORD", _IS_THE_HOLDER),
        at_most_once(2),
        _CALM,
        "ChangedByItsHolder",
    ),
    Mistake(
        f"{_NAME}compared and put over in two commands",
        _read_then_put_over,
        at_least_once(2, [HELD_IN_TURN], is_behind=True),
        Bounds(2, 1),
        "HeldInTurn",
    ),
    Mistake(
        f"{_NAME}unlocked in place of sealed",
        _unlocked_in_place_of_sealed,
        at_least_once(),
        _CALM,
        "NoGarbage",
    ),
    Mistake(
        f"{_NAME}a lock is taken for a seal", _an_expired_key_counts, at_least_once(2), _CRASH, "SentOrSaid"
    ),
)
