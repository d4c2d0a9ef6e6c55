"""One suite for all stores of keys: a key is only ever changed by who has seen it as it is."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from runtime.clock import system_clock
from runtime.errors import UsageError
from runtime.publishing.last_hop import DeliveryKey, Key, KeyState, open_keys, weaknesses
from tests.support.names import new_name

SECOND = 1_000_000
KEY = DeliveryKey.of("17", "m-1")
THOROUGH = [pytest.param(each, marks=pytest.mark.thorough) for each in ("azurite", "redis")]


@pytest.fixture(params=["sqlite", *THOROUGH])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/keys.db"
    if request.param == "azurite":
        return request.getfixturevalue("azurite_url")
    return request.getfixturevalue("redis_server").url


@pytest.fixture
def run():
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def keys(url, run):
    stack = AsyncExitStack()
    yield run(stack.enter_async_context(open_keys(url, new_name())))
    run(stack.aclose())


def locked(holder, seconds=60):
    return Key(KeyState.LOCKED, holder, system_clock() + seconds * SECOND)


def sealed(holder, end=None, why=None):
    return Key(KeyState.SEALED, holder, system_clock() + 120 * SECOND, end, why)


def test_a_key_is_put_once(keys, run):
    lock = locked("a")

    first = run(keys.put(KEY, lock))
    second = run(keys.put(KEY, locked("b")))

    assert second is None
    assert run(keys.get(KEY)) == first
    assert first._replace(etag="") == lock


def test_keys_of_other_customers_and_messages_are_others_and_sealed_ones_without_an_end_are_listed(keys, run):
    names = [
        ("17", "m-1"),
        ("18", "m-1"),
        ("17", "m-2"),
        ("a:b", "c"),
        ("a", "b:c"),
        ("a%3Ab", "c"),
        ("a/b", "c"),
    ]

    stored = {each: run(keys.put(DeliveryKey.of(*each), sealed("".join(each)))) for each in names}
    run(keys.put(DeliveryKey.of("18", "m-2"), sealed("a", "sent")))
    run(keys.put(DeliveryKey.of("18", "m-3"), locked("a")))

    async def listed():
        return [each async for each in keys.unended()]

    assert {each: run(keys.get(DeliveryKey.of(*each))) for each in names} == stored
    assert None not in stored.values()
    assert sorted(run(listed())) == sorted(names)


def test_the_holder_seals_and_its_end_is_there_or_unlocks(keys, run):
    lock = run(keys.put(KEY, locked("a")))
    seal = sealed("a", "not_sent", 'ValueError: "ü" is no number')

    stored = run(keys.put(KEY, seal, lock))

    assert stored._replace(etag="") == seal
    assert run(keys.get(KEY)) == stored

    other = DeliveryKey.of("18", "m-1")
    run(keys.delete(other, run(keys.put(other, locked("a")))))
    assert run(keys.get(other)) is None


def test_who_no_longer_holds_the_lock_neither_seals_nor_unlocks_nor_locks(keys, run):
    slow = run(keys.put(KEY, locked("slow")))
    other = run(keys.put(KEY, locked("other"), slow))

    run(keys.delete(KEY, slow))
    for new in (sealed("slow", "sent"), locked("slow")):
        assert run(keys.put(KEY, new, slow)) is None

    assert run(keys.get(KEY)) == other


@pytest.mark.thorough
def test_a_redis_that_is_killed_keeps_what_it_appended_to_its_log_and_one_that_is_gone_is_told(
    redis_server, run
):
    name = new_name()

    async def on_keys(method, *arguments):
        async with open_keys(redis_server.url, name) as keys:
            return await getattr(keys, method)(*arguments)

    stored = run(on_keys("put", KEY, sealed("a")))
    redis_server.kill()
    with pytest.raises(UsageError, match=r"Redis does not answer at 127.0.0.1:\d+. Start it \(redis-server "):
        run(weaknesses(redis_server.url, name))
    redis_server.start()

    assert run(on_keys("get", KEY)) == stored
    assert run(weaknesses(redis_server.url, name)) == []

    # ... but not one that has expired
    other = DeliveryKey.of("18", "m-2")
    run(on_keys("put", other, locked("a")._replace(expires_at=system_clock() + SECOND // 10)))
    run(asyncio.sleep(0.3))
    assert run(on_keys("get", other)) is None


@pytest.mark.thorough
def test_a_redis_that_keeps_all_in_memory_says_so(forgetful_redis, run):
    (remark,) = run(weaknesses(forgetful_redis.url, "keys"))

    assert "keys only in memory (appendonly is off): if it crashes, messages may be sent again" in remark
