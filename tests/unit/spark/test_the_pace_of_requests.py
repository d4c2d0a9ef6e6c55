"""A worker makes no more requests a second than it may, whatever asks; its calls are counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import Operation, drive
from runtime.retries import Pace, PacedTable
from tests.unit.runtime.tables import memory_table


class Time:
    """A clock that goes on only where somebody sleeps or works."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@given(st.floats(0.1, 1000), st.lists(st.floats(0, 3), min_size=1, max_size=60))
def test_in_no_second_is_more_than_one_token_more_taken_than_the_pace(per_second, pauses):
    time = Time()
    pace = Pace(per_second, time)
    taken = []
    for pause in pauses:
        time.now += pause
        taken.append(time.now + pace.take())

    assert taken == sorted(taken)
    for number, first in enumerate(taken):
        within = [at for at in taken[number:] if at < first + 1]
        assert len(within) <= per_second + 1


def test_what_was_not_taken_is_not_saved_up():
    time = Time()
    pace = Pace(10, time)
    time.now += 60

    assert [pace.take() for _ in range(3)] == pytest.approx([0, 0.1, 0.2])


def test_those_who_ask_at_once_wait_one_after_another():
    pace = Pace(4, Time())

    assert [pace.take() for _ in range(4)] == [0, 0.25, 0.5, 0.75]


def test_each_call_of_a_table_waits_for_its_turn_and_is_counted():
    time, table = Time(), memory_table()
    paced = PacedTable(table, Pace(2, time), time.sleep)

    drive(paced.transact("a", [Operation.insert("1", {}), Operation.insert("2", {})]))
    drive(paced.get("a", "1"))
    drive(paced.query("a", "1", "2"))

    assert time.now == 1001.0
    assert paced.calls == 3


def test_without_a_pace_calls_are_only_counted():
    paced = PacedTable(memory_table())

    drive(paced.get("a", "1"))

    assert paced.calls == 1
