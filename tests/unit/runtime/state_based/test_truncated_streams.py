"""After a truncation: the horizon has moved and never moves back, and what is kept works as before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import drive
from runtime.ledger.batch import BatchContext
from runtime.versions.stream import summaries
from tests.unit.runtime.diary import DIARY, ponder, write
from tests.unit.runtime.state_based.test_truncation_rules import OLD, add, table_with, truncate
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import DAY, HOUR, NOW, ToldClock, Worker, ends, made_by, outputs, stored

LATE = BatchContext(late="process")


def head(table):
    async def first():
        return [summary async for summary in summaries(table)]

    (summary,) = drive(first())
    return summary.head


def test_the_horizon_is_the_newest_time_among_the_cut_messages():
    table = memory_table()
    for line, shift in (("a", 0), ("b", 3 * HOUR), ("c", HOUR), ("d", 4 * HOUR)):
        add(table, line, enqueued_at=OLD + shift, written_at=OLD + 4 * HOUR)

    truncate(table)

    assert head(table).horizon == OLD + 3 * HOUR
    assert head(table).kept_from == 4


def test_the_redelivery_window_moves_the_horizon_further():
    # For logs whose broker stamps each copy anew: a copy of a cut message may seem newer than it was.
    table = table_with()

    truncate(table, redelivery_window=HOUR)

    assert head(table).horizon == OLD + HOUR
    assert ends(Worker(table).process(write("a", enqueued_at=OLD + HOUR))) == ["too_late"]
    assert ends(Worker(table).process(write("x", enqueued_at=OLD + HOUR + 1))) == ["processed"]


def test_the_horizon_does_not_move_back_when_older_messages_are_cut_later():
    table = memory_table()
    add(table, "a", enqueued_at=OLD + HOUR)
    add(table, "b")
    truncate(table)

    Worker(table, clock=ToldClock(OLD), batch=LATE).process(write("c", enqueued_at=OLD))
    truncate(table)

    assert made_by(table) == ["c"]
    assert head(table).horizon == OLD + HOUR


@given(
    times=st.lists(st.none() | st.integers(-5, 5), min_size=2, max_size=8),
    windows=st.lists(st.integers(0, 4), min_size=8, max_size=8),
)
def test_the_horizon_never_moves_back(times, windows):
    table, before = memory_table(), None
    for number, (time, window) in enumerate(zip(times, windows, strict=False)):
        Worker(table, clock=ToldClock(OLD), batch=LATE).process(
            write(str(number), enqueued_at=None if time is None else OLD + time)
        )
        truncate(table, redelivery_window=window, allow_undated=True)

        horizon = head(table).horizon
        assert before is None or (horizon is not None and horizon >= before)
        before = horizon


def test_a_truncation_of_messages_without_a_time_leaves_the_horizon_but_marks_the_stream():
    table = memory_table()
    add(table, "a", enqueued_at=None)
    add(table, "b")

    assert truncate(table).versions == 0
    assert not head(table).undated_cut

    assert truncate(table, allow_undated=True).versions == 1
    assert (head(table).horizon, head(table).undated_cut) == (None, True)
    add(table, "c")
    assert truncate(table).versions == 1
    assert head(table).undated_cut, "the mark stays when others are cut later"


def test_messages_are_judged_by_the_horizon():
    table = table_with()
    truncate(table)

    outcomes = Worker(table).process(
        write("a", enqueued_at=OLD),
        write("unknown", enqueued_at=OLD),
        write("new", enqueued_at=OLD + 1),
        write("undated"),
        write("newest"),
    )

    assert ends(outcomes) == ["too_late", "too_late", "processed", "processed", "duplicate"]


def test_a_kept_message_gives_the_outputs_that_it_gave_before():
    table = memory_table()
    first = [
        Worker(table, clock=ToldClock(OLD), batch="done").process(write(line, enqueued_at=OLD))
        for line in "abcd"
    ]

    truncate(table, keep_last=2)
    again = Worker(table).process(write("d"), write("c"))

    assert made_by(table) == ["c", "d"]
    assert ends(again) == ["duplicate", "duplicate"]
    assert outputs(again) == [*outputs(first[3]), *outputs(first[2])]


def test_the_state_goes_on_from_where_it_was():
    table = table_with()
    truncate(table)

    (outcome,) = Worker(table).process(ponder("p", enqueued_at=NOW))

    assert outcome.version == 5
    assert outcome.outputs[0].body == '{"lines":4}'
    assert [version.number for version in stored(table)] == [4, 5]


def test_a_state_that_is_too_large_for_the_header_is_still_there():
    table = memory_table()
    for number in range(4):
        add(table, "x" * 20_000 + str(number), message_id=str(number))

    truncate(table)
    (outcome,) = Worker(table).process(ponder("p", enqueued_at=NOW))

    assert made_by(table) == ["3", "p"]
    assert outcome.outputs[0].body == '{"lines":4}'


@pytest.mark.parametrize("keep_last", [1, 3])
def test_now_does_not_go_back_after_a_truncation(keep_last):
    table = memory_table()
    for line in "abcd":
        add(table, line, written_at=OLD + DAY)
    truncate(table, keep_last=keep_last)

    Worker(table, clock=ToldClock(OLD)).process(write("e", enqueued_at=NOW - DAY * 2))

    assert stored(table)[-1].record.now == OLD + DAY


def test_other_streams_are_left_as_they_are():
    table = table_with()
    other = Worker(table, clock=ToldClock(OLD), business_id="d-2")
    other.process(write("a", diary="d-2"))
    other.process(write("b", diary="d-2"))

    truncate(table)

    assert made_by(table, business_id="d-2") == ["a", "b"]
    assert made_by(table, business_id=DIARY) == ["newest"]
