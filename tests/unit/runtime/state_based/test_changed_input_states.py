"""A handler must return its next state and leave the one it was given alone; what it breaks, it breaks for itself."""

import pytest

from tests.unit.runtime.diary import SKY, Wrote, misbehave, write
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import Worker, ends, outputs, stored


@pytest.mark.parametrize("deed", ["set an attribute", "set in the dict", "set and fail"])
def test_a_changed_input_state_is_an_error_and_later_messages_see_the_right_one(deed):
    outcomes = Worker(memory_table()).process(write("a"), misbehave(deed), write("b"))

    assert ends(outcomes) == ["processed", "handler_error", "processed"]
    assert Wrote.model_validate_json(outputs(outcomes)[-1].body).on_page == ("a", "b")


@pytest.mark.parametrize("deed", ["set an attribute", "set in the dict"])
def test_a_changed_input_state_is_told_with_what_to_do(deed):
    (outcome,) = Worker(memory_table()).process(misbehave(deed))

    assert (
        outcome.error == "Diary mutated its input state: return a changed copy, state.model_copy(update=...)."
    )


def test_a_value_that_was_changed_into_one_that_is_written_alike_is_seen_by_no_later_message():
    # A list is written as a tuple is, so nothing shows; a replay would find the tuple.
    outcomes = Worker(memory_table()).process(write("a"), misbehave("set alike"), write("b"))

    assert ends(outcomes)[2] == "processed"
    assert Wrote.model_validate_json(outputs(outcomes)[-1].body).page_was_a == "tuple"


@pytest.mark.parametrize(
    ("deed", "after"),
    [
        ("return a whole number for a real one", b'{"lines":["a"],"words":["a"],"weight":7.0}'),
        ("return a text for a real one", b'{"lines":["a"],"words":["a"],"weight":7.0}'),
        ("return a list for a tuple", b'{"lines":["a","listed"],"words":["a"],"weight":0.0}'),
    ],
)
def test_an_unvalidated_result_is_stored_as_its_type_and_stops_no_later_message(deed, after):
    table = memory_table()

    outcomes = Worker(table).process(write("a"), misbehave(deed), write("b"))
    later = Worker(table).process(misbehave(deed), write("c"))

    assert ends(outcomes) == ["processed"] * 3
    assert ends(later) == ["duplicate", "processed"]
    assert stored(table)[1].after == after


def test_a_result_that_only_looks_changed_is_recorded_as_no_change():
    table = memory_table()
    worker = Worker(table)
    worker.process(misbehave("return a whole number for a real one", message_id="m-1"))

    worker.process(misbehave("return a whole number for a real one", message_id="m-2"))

    assert [version.record.after is None for version in stored(table)] == [False, True]


def test_a_handler_that_fails_on_a_replay_only_breaks_nothing_that_is_stored(monkeypatch: pytest.MonkeyPatch):
    table = memory_table()
    Worker(table).process(misbehave("fail under a dark sky", message_id="m-1"), write("a"))
    before = stored(table)
    monkeypatch.setitem(SKY, "colour", "black")

    outcomes = Worker(table).process(misbehave("fail under a dark sky", message_id="m-1"), write("a"))

    assert ends(outcomes) == ["replay_failed", "duplicate"]
    assert stored(table) == before
