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
STORES = [
    "sqlite",
    pytest.param("azurite", marks=pytest.mark.thorough),
    pytest.param("redis", marks=pytest.mark.thorough),
]


@pytest.fixture(params=STORES)
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/keys.db"
    if request.param == "azurite":
        return request.getfixturevalue("azurite_url")
    return request.getfixturevalue("redis_server").url


@pytest.fixture
def runner():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def keys(url, runner):
    stack = AsyncExitStack()
    yield runner.run(stack.enter_async_context(open_keys(url, new_name())))
    runner.run(stack.aclose())


@pytest.fixture
def run(runner):
    return runner.run


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


def test_keys_of_other_customers_and_messages_are_others(keys, run):
    names = (
        ("17", "m-1"),
        ("18", "m-1"),
        ("17", "m-2"),
        ("a:b", "c"),
        ("a", "b:c"),
        ("a%3Ab", "c"),
        ("a/b", "c"),
    )

    stored = {each: run(keys.put(DeliveryKey.of(*each), sealed("".join(each)))) for each in names}

    async def listed():
        return [each async for each in keys.unended()]

    assert {each: run(keys.get(DeliveryKey.of(*each))) for each in names} == stored
    assert None not in stored.values()
    assert sorted(run(listed())) == sorted(names)


def test_the_holder_seals_and_its_end_is_there(keys, run):
    lock = run(keys.put(KEY, locked("a")))
    seal = sealed("a", "not_sent", 'ValueError: "ü" is no number')

    stored = run(keys.put(KEY, seal, lock))

    assert stored._replace(etag="") == seal
    assert run(keys.get(KEY)) == stored


def test_the_holder_unlocks(keys, run):
    lock = run(keys.put(KEY, locked("a")))

    run(keys.delete(KEY, lock))

    assert run(keys.get(KEY)) is None


def test_who_no_longer_holds_the_lock_neither_seals_nor_unlocks_nor_locks(keys, run):
    slow = run(keys.put(KEY, locked("slow")))
    other = run(keys.put(KEY, locked("other"), slow))

    run(keys.delete(KEY, slow))
    for new in (sealed("slow", "sent"), locked("slow")):
        assert run(keys.put(KEY, new, slow)) is None

    assert run(keys.get(KEY)) == other


def test_sealed_keys_that_say_no_end_are_listed(keys, run):
    run(keys.put(KEY, sealed("a")))
    run(keys.put(DeliveryKey.of("18", "m-2"), sealed("a", "sent")))
    run(keys.put(DeliveryKey.of("18", "m-3"), locked("a")))

    async def listed():
        return [each async for each in keys.unended()]

    assert run(listed()) == [("17", "m-1")]


@pytest.mark.thorough
def test_a_redis_drops_a_key_that_has_expired(redis_server, run):
    async def expired():
        async with open_keys(redis_server.url, new_name()) as keys:
            await keys.put(KEY, locked("a")._replace(expires_at=system_clock() + SECOND // 10))
            await asyncio.sleep(0.3)
            return await keys.get(KEY)

    assert run(expired()) is None


@pytest.mark.thorough
def test_a_redis_that_is_killed_keeps_what_it_appended_to_its_log(redis_server, run):
    name = new_name()

    async def put():
        async with open_keys(redis_server.url, name) as keys:
            return await keys.put(KEY, sealed("a"))

    async def get():
        async with open_keys(redis_server.url, name) as keys:
            return await keys.get(KEY)

    stored = run(put())
    redis_server.kill()
    redis_server.start()

    assert run(get()) == stored
    assert run(weaknesses(redis_server.url, name)) == []


@pytest.mark.thorough
def test_a_redis_that_keeps_all_in_memory_says_so(forgetful_redis, run):
    (remark,) = run(weaknesses(forgetful_redis.url, "keys"))

    assert "keys in memory (appendonly is off): when it dies, what it had sealed may be sent again" in remark


@pytest.mark.thorough
def test_where_no_redis_is_a_sentence_says_how_to_start_one(redis_server, run):
    redis_server.kill()

    with pytest.raises(UsageError, match=r"No Redis answers at 127.0.0.1:\d+: start one \(redis-server "):
        run(weaknesses(redis_server.url, "keys"))
