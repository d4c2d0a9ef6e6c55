"""One suite for all stores of delivery keys: a key is only ever changed by who holds it, or has seen it."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from runtime.algorithms.last_hop.keys import DeliveryKey, KeyState, Record
from runtime.clock import system_clock
from runtime.delivery.key_stores import open_keys
from tests.support.names import new_name

SECOND = 1_000_000
KEY = DeliveryKey.of("17", "m-1")
SENT = Record("sent", None, 1_767_225_600_000_000)
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


def later(seconds=60):
    return system_clock() + seconds * SECOND


def test_a_key_is_put_once(keys, run):
    until = later()

    first = run(keys.put(KEY, KeyState.LOCKED, "a", until))
    second = run(keys.put(KEY, KeyState.LOCKED, "b", until))

    assert second is None
    assert run(keys.get(KEY)) == first
    assert (first.state, first.holder, first.expires_at) == (KeyState.LOCKED, "a", until)


def test_keys_of_other_customers_and_messages_are_others(keys, run):
    others = [DeliveryKey.of("18", "m-1"), DeliveryKey.of("17", "m-2"), DeliveryKey.of("17:m", "1")]

    run(keys.put(KEY, KeyState.SEALED, "a", later()))

    assert [run(keys.get(each)) for each in others] == [None] * 3


def test_only_who_saw_the_key_as_it_is_puts_another_over_it(keys, run):
    old = run(keys.put(KEY, KeyState.LOCKED, "a", later()))
    new = run(keys.put(KEY, KeyState.LOCKED, "b", later(), over=old))

    assert run(keys.put(KEY, KeyState.LOCKED, "c", later(), over=old)) is None
    assert run(keys.get(KEY)) == new
    assert new.holder == "b"


def test_the_holder_seals_and_its_end_is_there(keys, run):
    lock = run(keys.put(KEY, KeyState.LOCKED, "a", later()))

    assert run(keys.end(KEY, lock, later(120), SENT, "a"))
    sealed = run(keys.get(KEY))
    assert (sealed.state, sealed.holder) == (KeyState.SEALED, "a")
    assert run(keys.end_of(KEY, "a")) == SENT
    assert run(keys.end_of(KEY, "b")) is None


def test_the_holder_unlocks(keys, run):
    lock = run(keys.put(KEY, KeyState.LOCKED, "a", later()))

    assert run(keys.end(KEY, lock, None, Record("not_sent", "busy", 1), "a"))
    assert run(keys.get(KEY)) is None


@pytest.mark.parametrize("sealed_until", [None, later(120)], ids=["unlock", "seal"])
def test_who_no_longer_holds_the_lock_neither_seals_nor_unlocks(keys, run, sealed_until):
    slow = run(keys.put(KEY, KeyState.LOCKED, "slow", later()))
    other = run(keys.put(KEY, KeyState.LOCKED, "other", later(), over=slow))

    assert not run(keys.end(KEY, slow, sealed_until, SENT, "slow"))
    assert run(keys.get(KEY)) == other


def test_the_end_of_a_key_that_was_sealed_before_sending_is_added(keys, run):
    sealed = run(keys.put(KEY, KeyState.SEALED, "a", later()))
    assert run(keys.end_of(KEY, "a")) is None

    end = Record("not_sent", 'ValueError: "ü" is no number', 1_767_225_600_000_000)
    for _ in range(2):  # as after an answer that was lost
        assert run(keys.end(KEY, None, None, end, "a"))

    assert run(keys.end_of(KEY, "a")) == end
    found = run(keys.get(KEY))
    assert found[:3] == sealed[:3]


def test_the_end_of_another_delivery_leaves_the_key_as_it_is(keys, run):
    sealed = run(keys.put(KEY, KeyState.SEALED, "a", later()))

    run(keys.end(KEY, None, None, Record("filtered", None, 1), "b"))

    assert run(keys.get(KEY)) == sealed
    assert run(keys.end_of(KEY, "a")) is None
