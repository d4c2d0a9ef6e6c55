"""`now` never goes back within a stream, whatever the clock does."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.versions.run import Version
from tests.unit.runtime.diary import ponder, write
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import HOUR, NOW, ToldClock, Worker, stored


def times(found: list[Version]) -> list[int]:
    return [version.record.now for version in found]


def test_a_clock_that_goes_back_between_batches_does_not_take_now_back():
    table = memory_table()
    Worker(table, clock=ToldClock(NOW)).process(write("a"))

    Worker(table, clock=ToldClock(NOW - HOUR)).process(write("b"))
    Worker(table, clock=ToldClock(NOW + HOUR)).process(write("c"))

    assert times(stored(table)) == [NOW, NOW, NOW + HOUR]


def test_a_clock_that_goes_back_within_a_batch_does_not_take_now_back():
    table = memory_table()
    moments = iter([NOW, NOW - HOUR, NOW - HOUR, NOW + 1, NOW + 1, NOW + 1])

    Worker(table, clock=lambda: next(moments)).process(write("a"), write("b"), ponder("p"), write("c"))

    assert times(stored(table)) == [NOW, NOW, NOW, NOW + 1]


@given(st.lists(st.lists(st.integers(-5, 5), min_size=1, max_size=3), min_size=1, max_size=6))
def test_now_never_goes_back_and_is_never_ahead_of_all_clocks(batches):
    table, number = memory_table(), 0
    latest: list[int] = []
    for batch in batches:
        clock = ToldClock()
        worker = Worker(table, clock=clock)
        for shift in batch:
            clock.now = NOW + shift
            number += 1
            worker.process(write(f"m-{number}"))
            latest.append(max([*latest, NOW + shift]))

    assert times(stored(table)) == latest
