"""The model of Redis that deliveries are explored with answers random programs of commands as a real server does."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from runtime.delivery.redis_keys import _DELETE, _RECORD, _REPLACE
from tests.model.lua import LuaError, compiled
from tests.model.redis_model import Entry, RedisModel

PROGRAMS, COMMANDS = 400, 15
HOUR = 3_600_000
KEYS = ["key 1", "key 2"]
HOLDERS = ["a", "b", "a-1.+"]
VALUES = [
    *(f"{state} {holder} {at}" for state in (0, 1) for holder in HOLDERS for at in (5, 70)),
    "1 a",
    "",
    "1  5 x",
]
ENDS = ['["sent", null, 5]', "%d", "ü"]
Command = tuple[Any, ...]


def program(chance: random.Random, now: int) -> Iterator[Command]:
    """Give commands as keys of deliveries send them, and worse."""
    for _ in range(COMMANDS):
        key, until = chance.choice(KEYS), chance.choice([now - HOUR, now + HOUR, now + 2 * HOUR])
        value, other = chance.choice(VALUES), chance.choice(VALUES)
        yield chance.choice(
            [
                ("GET", key),
                ("DEL", key),
                ("SET", key, value, "PXAT", until),
                ("SET", key, value, "NX", "PXAT", until),
                ("SET", key, value, "KEEPTTL"),
                ("SET", key, value),
                ("EVAL", _REPLACE, 1, key, value, other, until),
                ("EVAL", _DELETE, 1, key, value),
                ("EVAL", _RECORD, 1, key, chance.choice(HOLDERS), chance.choice(ENDS)),
            ]
        )


def now_in_milliseconds() -> int:
    return time.time_ns() // 1_000_000


def asked(server: Redis, command: Command) -> Any:
    """Return a reply with what tells OK from nothing, as redis-py does for `set`."""
    reply: Any = server.execute_command(*command)
    return reply if command[0] != "SET" else (True if reply else None)


def differs(server: Redis, model: RedisModel, chance: random.Random) -> str | None:
    """Run a program on both, and say at which command they differ."""
    server.flushdb()
    now = now_in_milliseconds()
    for command in program(chance, now):
        real, modelled = asked(server, command), model.command(now, *command)
        if real != modelled:
            return f"{command}: {real!r} really, {modelled!r} in the model"
    for key in KEYS:
        left: Any = server.pttl(key)
        until = model.entries.get(key, Entry("")).expires_at or now
        real = server.get(key), max(0, round(left / HOUR))
        modelled = model.command(now, "GET", key), max(0, round((until - now) / HOUR))
        if real != modelled:
            return f"{key} is {real!r} really, {modelled!r} in the model"
    return None


@pytest.fixture
def server(redis_server) -> Iterator[Redis]:
    with Redis.from_url(redis_server.url, decode_responses=True) as client:
        yield client


@pytest.mark.thorough
def test_it_replies_as_a_server_does(server):
    for seed in range(PROGRAMS):
        assert differs(server, RedisModel(), random.Random(seed)) is None, seed


class PutsAnyway(RedisModel):
    def _set(self, now: int, key: str, value: str, *options: str) -> bool | None:
        return super()._set(now, key, value, *[option for option in options if option != "NX"])


class NeverExpires(RedisModel):
    def command(self, now: int, name: str, *words: Any) -> Any:
        return super().command(0, name, *words)


class ForgetsWhen(RedisModel):
    def _set(self, now: int, key: str, value: str, *options: str) -> bool | None:
        return super()._set(now, key, value, *[option for option in options if option != "KEEPTTL"])


class ReplacesAnyway(RedisModel):
    def _eval(self, now: int, script: str, count: str, *words: str) -> Any:
        _, _, unchecked = script.partition("return 0 end")
        return super()._eval(now, unchecked if script == _REPLACE else script, count, *words)


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", [PutsAnyway, NeverExpires, ForgetsWhen, ReplacesAnyway])
def test_a_model_that_is_wrong_is_told_from_a_server(server, wrong):
    assert any(differs(server, wrong(), random.Random(seed)) for seed in range(PROGRAMS))


def test_what_has_expired_is_not_there():
    redis = RedisModel()
    assert redis.command(10, "SET", "k", "v", "PXAT", 20) is True
    assert redis.command(20, "GET", "k") == "v"
    assert redis.command(21, "SET", "k", "w", "NX") is True


def test_a_script_that_is_more_than_the_model_knows_is_refused():
    with pytest.raises(LuaError, match="This is not understood: '# 1'"):
        compiled("return # 1")
    with pytest.raises(LuaError, match="There is 'do' where a value is expected"):
        compiled("return 1 do return 2")
