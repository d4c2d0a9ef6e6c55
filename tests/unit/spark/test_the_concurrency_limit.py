"""How many streams are worked on at once follows from how fast the store answers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from eventstore import InterceptedTable, StoreUnavailableError, connect, drive
from runtime.spark.worker.connection import FEWEST, ConcurrencyLimit, EventLoop, MeasuredTable

MOST = 64


def answer(concurrency: ConcurrencyLimit, seconds: float, times: int = 2_000) -> None:
    for _ in range(times):
        concurrency.answered(seconds)


def test_a_store_that_answers_as_fast_as_ever_gets_more_streams_up_to_the_bound() -> None:
    concurrency = ConcurrencyLimit(MOST)
    first = concurrency.limit

    answer(concurrency, 0.01, times=100)
    later = concurrency.limit
    answer(concurrency, 0.01)

    assert first < later
    assert concurrency.limit == MOST


def test_a_store_that_becomes_slow_gets_fewer_at_once() -> None:
    concurrency = ConcurrencyLimit(MOST)
    answer(concurrency, 0.01)

    answer(concurrency, 0.1, times=2 * MOST)

    assert concurrency.limit < MOST / 2


def test_a_store_that_serves_one_call_after_another_gets_no_queue() -> None:
    concurrency = ConcurrencyLimit(MOST)

    limits = []
    for _ in range(20_000):
        concurrency.answered(0.002 * concurrency.limit)
        limits.append(concurrency.limit)

    assert FEWEST <= max(limits) < MOST / 2


def test_a_failure_halves_the_number() -> None:
    concurrency = ConcurrencyLimit(MOST)
    answer(concurrency, 0.01)

    concurrency.failed()

    assert concurrency.limit == MOST // 2


def test_there_is_always_a_stream_under_way_and_after_failures_there_are_more_again() -> None:
    concurrency = ConcurrencyLimit(MOST)

    for _ in range(20):
        concurrency.failed()
    after_failures = concurrency.limit
    answer(concurrency, 0.01)

    assert after_failures == FEWEST
    assert concurrency.limit == MOST


def test_a_store_that_is_slower_for_good_gets_its_streams_back() -> None:
    concurrency = ConcurrencyLimit(MOST)
    answer(concurrency, 0.01)

    limits = set()
    for _ in range(20_000):
        concurrency.answered(0.1)
        limits.add(concurrency.limit)

    assert MOST in limits


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_small_bound_is_kept(most: int) -> None:
    concurrency = ConcurrencyLimit(most)

    answer(concurrency, 0.01)
    concurrency.failed()

    assert concurrency.limit == min(most, FEWEST)


def test_calls_of_a_table_are_taken_note_of_and_failures_too() -> None:
    concurrency = ConcurrencyLimit(MOST)
    answer(concurrency, 1.0)
    table = drive(connect("memory:").table("games"))
    measured = MeasuredTable(table, concurrency)

    def fail(*_: object) -> None:
        raise StoreUnavailableError("no answer")

    assert drive(measured.get("stream", "row")) is None
    with pytest.raises(StoreUnavailableError):
        drive(MeasuredTable(InterceptedTable(table, before=fail), concurrency).get("stream", "row"))

    assert concurrency.limit == MOST // 2


def test_coroutines_are_asked_for_only_while_there_is_room() -> None:
    loop = EventLoop()
    concurrency = ConcurrencyLimit(4)
    under_way, most_under_way = 0, 0

    async def work(number: int) -> int:
        nonlocal under_way, most_under_way
        under_way += 1
        most_under_way = max(most_under_way, under_way)
        for _ in range(3):
            await asyncio.sleep(0)
        under_way -= 1
        return number

    asked = 0

    def coroutines() -> Iterator[Coroutine[Any, Any, int]]:
        nonlocal asked
        for number in range(50):
            asked += 1
            assert asked - len(results) <= concurrency.limit
            yield work(number)

    results: list[int] = []
    try:
        for result in loop.run_all(coroutines(), concurrency):
            results += [result]
    finally:
        loop.close()

    assert sorted(results) == list(range(50))
    assert 1 < most_under_way <= concurrency.limit
