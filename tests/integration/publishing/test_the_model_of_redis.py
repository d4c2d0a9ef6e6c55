"""The model of Redis that deliveries are explored with answers random programs of commands as a real server does."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis, WatchError

from tests.model.redis_model import RedisModel

PROGRAMS, COMMANDS = 300, 15
HOUR = 3_600_000
KEYS = ["key 1", "key 2"]
VALUES = ["a", "b", ""]


def differs(server: Redis, model: RedisModel, chance: random.Random) -> str | None:
    """Run a program on both, and return at which command they differ."""
    server.flushdb()
    now = time.time_ns() // 1_000_000
    for number in range(COMMANDS):
        key, other = chance.choice(KEYS), chance.choice(KEYS)
        value, until = chance.choice([*VALUES, None]), chance.choice([now - HOUR, now + HOUR])
        if model.get(now, key) is not None and chance.random() < 0.6:
            # A key that is there is watched, perhaps changed by another client, and then changed
            pipe = server.pipeline()
            pipe.watch(key)
            watched = model.get(now, key)
            real: list[Any] = [pipe.get(key)]
            modelled: list[Any] = [watched]
            if chance.random() < 0.5:
                server.set(other, f"other {number}", pxat=until)
                model.set(now, other, f"other {number}", until)
            pipe.multi()
            pipe.delete(key) if value is None else pipe.set(key, value, pxat=until)
            try:
                pipe.execute()
                real.append(True)
            except WatchError:
                real.append(False)
            modelled.append(model.execute(now, key, watched, value, until))
        else:
            is_new = chance.random() < 0.5
            real = [bool(server.set(key, value or "", nx=is_new, pxat=until))]
            modelled = [model.set(now, key, value or "", until, is_new=is_new)]
        real += [server.get(each) for each in KEYS]
        modelled += [model.get(now, each) for each in KEYS]
        if real != modelled:
            return f"{real} really, {modelled} in the model"
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
    def set(self, now, key, value, until, *, is_new=False):
        return super().set(now, key, value, until)


class NeverExpires(RedisModel):
    def set(self, now, key, value, until, *, is_new=False):
        return super().set(0, key, value, until, is_new=is_new)

    def get(self, now, key):
        return super().get(0, key)


class WatchesNothing(RedisModel):
    def execute(self, now, key, watched, value, until):
        return self.set(now, key, value, until)


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", [PutsAnyway, NeverExpires, WatchesNothing])
def test_a_model_that_is_wrong_is_told_from_a_server(server, wrong):
    assert any(differs(server, wrong(), random.Random(seed)) for seed in range(PROGRAMS))


def test_what_has_expired_is_not_there():
    redis = RedisModel()
    assert redis.set(10, "k", "v", 20)
    assert redis.get(20, "k") == "v"
    assert redis.set(21, "k", "w", 30, is_new=True)
