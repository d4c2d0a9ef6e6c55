"""Decisions: which deliveries are handled, replayed, held back or refused, alone and in groups."""

import json

import msgpack
import pytest

from eventstore import Table, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime import Envelope, Output, Processor
from runtime.algorithms.state_based.truncation import TruncationRules, truncate_stream
from runtime.ledger.batch import BatchContext, OpenBatches, Seen
from runtime.messages.parsing import prepare
from runtime.versions.limits import MAX_STATE_BYTES
from samples.shooting_range import app as shooting_range
from tests.unit.handlers import onlooker
from tests.unit.runtime.diary import DIARY, SKY, Wrote, delivery, misbehave, ponder, write
from tests.unit.runtime.diary import app as diary_app
from tests.unit.runtime.games import fire, start
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import contents, memory_table
from tests.unit.runtime.worker import (
    DAY,
    HOUR,
    NOW,
    ToldClock,
    Worker,
    ends,
    letters,
    made_by,
    outputs,
    stored,
)

# A message that must not be handled is a dead letter with its reason.


BAD: dict[str, tuple[Envelope, str]] = {
    "another type": (delivery("m", "Shout", {"diary": DIARY}), "unknown_type"),
    "no JSON": (delivery("m", "Write", "{"), "invalid_body"),
    "no object": (delivery("m", "Write", "[]"), "invalid_body"),
    "single quotes": (delivery("m", "Write", "{'diary':'d-1','line':'x'}"), "invalid_body"),
    "half a character": (delivery("m", "Write", '{"diary":"d-1","line":"\ud800"}'), "invalid_body"),
    "half an escaped character": (delivery("m", "Write", '{"diary":"d-1","line":"\\ud800"}'), "invalid_body"),
    "a lacking field": (delivery("m", "Write", {"diary": DIARY}), "invalid_body"),
    "a field of another type": (delivery("m", "Write", {"diary": DIARY, "line": 7}), "invalid_body"),
    "no msgpack": (delivery("m", "Write", b"\xc1"), "invalid_body"),
    "half of a msgpack": (
        delivery("m", "Write", msgpack.packb({"diary": DIARY, "line": "x"})[:-1]),
        "invalid_body",
    ),
    "an unreadable large number": (
        delivery("m", "Write", f'{{"diary":"d-1","line":"x","n":{"9" * 5000}}}'),
        "invalid_body",
    ),
    "no business id": (delivery("m", "Write", {"line": "x"}), "no_business_id"),
    "a business id that is null": (delivery("m", "Write", {"diary": None, "line": "x"}), "no_business_id"),
    "an empty business id": (delivery("m", "Write", {"diary": "", "line": "x"}), "no_business_id"),
    "another business id": (delivery("m", "Write", {"diary": "d-2", "line": "x"}), "business_id_mismatch"),
    "enqueued in the future": (write("x", enqueued_at=NOW + HOUR + 1), "enqueued_in_future"),
    "enqueued after all time": (write("x", enqueued_at=2**62), "enqueued_in_future"),
    "enqueued before all time": (write("x", enqueued_at=-(2**63)), "invalid_envelope"),
    "enqueued before 1601": (write("x", enqueued_at=-11_644_473_600_000_001), "invalid_envelope"),
    "a header without a value": (write("x", headers={"trace": None}), "invalid_envelope"),
    "half a character in a header": (write("x", headers={"trace": "\ud800"}), "invalid_envelope"),
    "half a character in its id": (write("x", message_id="\ud800"), "invalid_envelope"),
    "a state too large": (write("x" * MAX_STATE_BYTES, message_id="m"), "state_too_large"),
}

BAD_DEEDS = [
    "set an attribute",
    "set in the dict",
    "set and fail",
    "fail",
    "fail unspeakably",
    "exit",
    "recurse",
    "return nothing",
    "return a message",
    "return a dict",
    "return a wrong value",
    "return what does not come back",
    "return an unknown field",
    "publish nothing",
    "publish a number in a header",
    "capture what is no data",
    "capture twice",
]


BAD |= {f"a handler that does: {deed}": (misbehave(deed), "handler_error") for deed in BAD_DEEDS}


@pytest.mark.parametrize("bad", BAD)
def test_a_dead_letter_has_its_reason_and_a_sentence_and_is_kept_as_it_was(bad):
    envelope, reason = BAD[bad]
    table = memory_table()

    (outcome,) = Worker(table).process(envelope)

    assert ends([outcome]) == [reason]
    assert outcome.error
    assert (outcome.version, outcome.outputs, outcome.envelope) == (None, (), envelope)
    (letter,) = letters(table)
    assert (letter.envelope, letter.reason, letter.error) == (envelope, reason, outcome.error)
    assert made_by(table) == []


@pytest.mark.parametrize("bad", BAD)
def test_a_dead_letter_in_a_stream_that_is_there_adds_a_letter_and_nothing_else_once(bad):
    envelope, reason = BAD[bad]
    table = memory_table()
    Worker(table).process(write("first"))
    before = stored(table)

    (outcome,) = Worker(table).process(envelope)

    assert ends([outcome]) == [reason]
    assert stored(table) == before
    (letter,) = letters(table)
    assert letter.version == 1
    kept = contents(table)
    assert Worker(table).process(envelope) == [outcome]
    assert contents(table) == kept


@pytest.mark.parametrize("bad", BAD)
def test_a_dead_letter_costs_no_other_message_its_outcome(bad):
    envelope, reason = BAD[bad]
    undisturbed = Worker(memory_table()).process(write("a"), write("b"), write("c"))
    table = memory_table()

    outcomes = Worker(table).process(write("a"), envelope, write("b"), envelope, write("c"))

    assert ends(outcomes) == ["processed", reason, "processed", reason, "processed"]
    assert [outcomes[0], outcomes[2], outcomes[4]] == undisturbed
    assert made_by(table) == ["a", "b", "c"]


def test_a_captured_value_that_is_too_large_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch):
    table = memory_table()
    monkeypatch.setitem(SKY, "colour", "x" * MAX_STATE_BYTES)

    outcomes = Worker(table).process(ponder("p"), write("a"))

    assert ends(outcomes) == ["processed", "state_too_large"]
    assert made_by(table) == ["p"]


def test_a_message_that_is_exactly_an_hour_ahead_is_handled():
    (outcome,) = Worker(memory_table()).process(write("x", enqueued_at=NOW + HOUR))

    assert ends([outcome]) == ["processed"]


def test_a_known_message_is_replayed_even_when_its_copy_lies_about_its_time():
    table = memory_table()
    (first,) = Worker(table).process(write("a"))

    (again,) = Worker(table).process(write("a", enqueued_at=NOW + 2 * HOUR))

    assert ends([again]) == ["duplicate"]
    assert again.outputs == first.outputs


def test_another_message_with_a_known_id_is_told_from_a_duplicate():
    table = memory_table()
    Worker(table).process(write("a", message_id="m-1"))
    before = stored(table)

    (outcome,) = Worker(table).process(write("b", message_id="m-1"))

    assert ends([outcome]) == ["id_reused"]
    assert outcome.error == "Version 1 was made by another message with the id m-1."
    assert stored(table) == before


def test_another_message_with_an_id_of_the_same_batch_is_told_from_a_duplicate():
    table = memory_table()

    outcomes = Worker(table).process(write("a", message_id="m-1"), write("b", message_id="m-1"), write("c"))

    assert ends(outcomes) == ["processed", "id_reused", "processed"]
    assert made_by(table) == ["m-1", "c"]


def test_another_type_with_a_known_id_is_told_from_a_duplicate():
    table = memory_table()
    Worker(table).process(delivery("m-1", "Ponder", {"diary": DIARY, "how": "fail"}))

    (outcome,) = Worker(table).process(delivery("m-1", "Misbehave", {"diary": DIARY, "how": "fail"}))

    assert ends([outcome]) == ["id_reused"]


def test_the_error_of_a_handler_names_the_error_and_its_place():
    (outcome,) = Worker(memory_table()).process(misbehave("fail"))

    assert outcome.error is not None
    assert outcome.error.startswith("ValueError: no more ink (diary.py, line ")


def test_a_message_that_failed_is_handled_by_better_code_when_it_is_redriven_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
):
    table = memory_table()
    monkeypatch.setitem(SKY, "colour", "black")
    (failed,) = Worker(table).process(misbehave("fail under a dark sky"))
    monkeypatch.setitem(SKY, "colour", "blue")

    (again,) = Worker(table, batch="batch-2").process(misbehave("fail under a dark sky"))
    redrive = BatchContext("batch-3", is_redrive=True)
    (outcome,) = Worker(table, batch=redrive).process(misbehave("fail under a dark sky"))

    assert again == failed
    assert ends([outcome]) == ["processed"]
    assert letters(table) == ()


class Rang(Message):
    tower: str


class Data(State):
    rings: int = 0


class Bell(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        return state


@pytest.mark.parametrize("tower", ["x" * 508, "é" * 508, "/" * 170])
def test_a_key_that_is_too_long_is_a_dead_letter(tower):
    published: list[Output] = []

    async def publish(output: Output) -> None:
        published.append(output)

    table = memory_table()
    (outcome,) = drive(
        Processor(App(Bell), table, publish).process(delivery("m-1", "Rang", {"tower": tower}))
    )

    assert ends([outcome]) == ["key_too_long"]
    assert {partition for partition, _ in contents(table)} == {"_letters"}


def test_the_longest_key_is_handled():
    (outcome,) = Worker(memory_table(), App(Bell), business_id="x" * 507).process(
        delivery("m-1", "Rang", {"tower": "x" * 507})
    )

    assert ends([outcome]) == ["processed"]


def test_what_was_routed_without_a_business_id_although_it_has_one_is_a_mismatch():
    outcome = prepare(diary_app.handlers["Diary"], None, write("a"))

    assert ends([outcome]) == ["business_id_mismatch"]  # type: ignore[list-item]


def test_a_clock_that_is_behind_refuses_what_seems_to_come_from_the_future():
    behind = Worker(memory_table(), clock=ToldClock(NOW - 2 * HOUR))

    assert ends(behind.process(write("a", enqueued_at=NOW))) == ["enqueued_in_future"]


# With `stop-stream`, new messages after a dead letter wait; known ones do not.


STOP = BatchContext("batch-1", on_error="stop-stream")


def test_new_messages_after_a_dead_letter_are_held_back():
    table = memory_table()

    outcomes = Worker(table, batch=STOP).process(write("a"), misbehave("fail"), write("b"), write("c"))

    assert ends(outcomes) == ["processed", "handler_error", "held_back", "held_back"]
    assert made_by(table) == ["a"]


def test_a_delivery_that_could_not_even_be_read_holds_them_back_too():
    outcomes = Worker(memory_table(), batch=STOP).process(
        delivery("m", "Write", {"diary": DIARY}), write("b")
    )

    assert ends(outcomes) == ["invalid_body", "held_back"]


def test_known_messages_are_replayed_all_the_same():
    table = memory_table()
    first = Worker(table, batch="batch-0").process(write("a"), write("b"))

    outcomes = Worker(table, batch=STOP).process(misbehave("fail"), write("a"), write("c"), write("b"))

    assert ends(outcomes) == ["handler_error", "duplicate", "held_back", "duplicate"]
    assert outputs(outcomes) == outputs(first)


def test_a_copy_of_a_message_before_the_dead_letter_is_a_duplicate():
    outcomes = Worker(memory_table(), batch=STOP).process(write("a"), misbehave("fail"), write("a"))

    assert ends(outcomes) == ["processed", "handler_error", "duplicate"]


def test_what_was_held_back_is_a_letter_and_later_messages_are_handled():
    table = memory_table()
    Worker(table, batch=STOP).process(misbehave("fail"), write("a"))

    assert ends(Worker(table, batch="batch-2").process(write("a"), write("b"))) == ["held_back", "processed"]
    assert ends(Worker(table, batch=BatchContext("batch-3", is_redrive=True)).process(write("a"))) == [
        "processed"
    ]


def test_a_stream_that_was_stopped_before_stays_stopped():
    worker = Worker(memory_table(), batch=STOP)
    deliveries = [prepare(worker.handler, DIARY, write("a"))]

    outcomes = drive(worker.algorithm.process(DIARY, deliveries, Seen(dead_letter=True)))

    assert ends(outcomes) == ["held_back"]


def test_without_the_option_nothing_is_held_back():
    outcomes = Worker(memory_table(), batch="batch-1").process(misbehave("fail"), write("a"))

    assert ends(outcomes) == ["handler_error", "processed"]


# A message that is not newer than the horizon cannot be told from a duplicate: it is too late, and stores nothing.


HORIZON = NOW - 10 * DAY
LATE = BatchContext("batch-1", late="process")


def truncated_table(*, undated: bool = False) -> Table:
    """Return a table with a stream of which the message "cut" was cut away, and "kept" is kept."""
    table = memory_table()
    worker = Worker(table, clock=ToldClock(HORIZON))
    worker.process(write("cut", enqueued_at=None if undated else HORIZON))
    worker.process(write("kept", enqueued_at=HORIZON - DAY))
    rules = TruncationRules.of(NOW, OpenBatches(), older_than=DAY, acknowledged_after=0, allow_undated=True)
    truncated = drive(truncate_stream(table, f"Diary-{DIARY}", rules, PATIENCE))
    assert truncated is not None
    assert truncated.versions == 1
    return table


@pytest.mark.parametrize("enqueued_at", [HORIZON, HORIZON - 1, HORIZON - 99 * DAY])
def test_an_unknown_message_that_is_not_newer_than_the_horizon_is_too_late(enqueued_at):
    table = truncated_table()
    before = contents(table)

    (outcome,) = Worker(table).process(write("a", enqueued_at=enqueued_at))

    assert ends([outcome]) == ["too_late"]
    assert (outcome.version, outcome.outputs, outcome.reason) == (None, (), None)
    assert contents(table) == before


def test_the_message_that_was_cut_is_not_processed_again():
    table = truncated_table()

    (outcome,) = Worker(table).process(write("cut", enqueued_at=HORIZON))

    assert ends([outcome]) == ["too_late"]
    assert made_by(table) == ["kept"]


def test_a_message_that_is_newer_than_the_horizon_is_processed():
    (outcome,) = Worker(truncated_table()).process(write("a", enqueued_at=HORIZON + 1))

    assert ends([outcome]) == ["processed"]
    assert outcome.version == 3


def test_a_known_message_is_replayed_although_it_is_older_than_the_horizon():
    (outcome,) = Worker(truncated_table()).process(write("kept", enqueued_at=HORIZON - DAY))

    assert ends([outcome]) == ["duplicate"]
    assert len(outcome.outputs) == 1


def test_a_message_without_a_time_is_processed_where_none_without_a_time_was_cut():
    assert ends(Worker(truncated_table()).process(write("a"))) == ["processed"]


def test_a_message_without_a_time_is_too_late_where_one_without_a_time_was_cut():
    table = truncated_table(undated=True)

    assert ends(Worker(table).process(write("a"), write("cut"), ponder("p"))) == ["too_late"] * 3
    assert made_by(table) == ["kept"]


def test_a_message_with_a_time_is_processed_where_only_ones_without_a_time_were_cut():
    assert ends(Worker(truncated_table(undated=True)).process(write("a", enqueued_at=1))) == ["processed"]


def test_a_late_message_is_processed_when_that_is_asked_for():
    table = truncated_table()

    outcomes = Worker(table, batch=LATE).process(write("a", enqueued_at=HORIZON), write("kept"))

    assert ends(outcomes) == ["processed", "duplicate"]
    assert made_by(table) == ["kept", "a"]


def test_a_late_message_costs_no_other_message_its_outcome():
    table = truncated_table()

    outcomes = Worker(table).process(
        write("a", enqueued_at=HORIZON), write("b", enqueued_at=NOW), write("kept")
    )

    assert ends(outcomes) == ["too_late", "processed", "duplicate"]
    assert len(outputs(outcomes)) == 2


# A handler must return its next state and leave the one it was given alone; what it breaks, it breaks for itself.


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


# A processor with guard makes a dead letter of a message whose handler looks past its context, and stores nothing.


async def publish(_: Output) -> None: ...


def look(how: str) -> Envelope:
    return Envelope(f"look {how}", "Look", json.dumps({"house": "h", "how": how}))


@pytest.mark.parametrize("how", ["now", "catch now"])
def test_with_guard_the_message_is_a_dead_letter_that_names_call_line_and_remedy(how):
    table = memory_table()
    processor = Processor(onlooker.app, table, publish, guard=True)

    (outcome,) = drive(processor.process(look(how)))

    assert ends([outcome]) == ["handler_error"]
    assert (outcome.error or "").startswith("datetime.now() in now (onlooker.py, line ")
    assert (outcome.error or "").endswith("use context.now.")
    assert not [key for _, key in contents(table) if key.startswith("SS-SE-")]


def test_with_guard_the_messages_after_it_are_handled():
    processor = Processor(onlooker.app, memory_table(), publish, guard=True)

    outcomes = [drive(processor.process(look(how)))[0] for how in ("now", "captured", "captured")]

    assert ends(outcomes) == ["handler_error", "processed", "duplicate"]


def test_without_guard_nobody_is_told():
    processor = Processor(onlooker.app, memory_table(), publish)

    assert ends(drive(processor.process(look("now")))) == ["processed"]


def test_the_store_the_clock_and_the_publisher_work_beside_a_guarded_handler():
    processor = Processor(shooting_range, memory_table(), publish, guard=True)

    outcomes = [
        drive(processor.process(each))[0] for each in (start(1, 5), fire(1, 5), fire(2, 6), fire(1, 5))
    ]

    assert ends(outcomes) == ["processed", "processed", "processed", "duplicate"]
    assert [output.type for outcome in outcomes for output in outcome.outputs] == ["Hit", "Missed", "Hit"]
