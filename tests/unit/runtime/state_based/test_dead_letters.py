"""A message that must not be handled is a dead letter with its reason.

It is kept as a letter, makes no version, and no other message loses its outcome.
"""

import msgpack
import pytest

from eventstore import drive
from handlers import App, Context, Handler, Message, State, handles
from runtime import Envelope, Output, Processor
from runtime.ledger.batch import BatchContext
from runtime.messages.parsing import prepare
from runtime.versions.limits import MAX_STATE_BYTES
from tests.unit.runtime.diary import DIARY, SKY, delivery, misbehave, ponder, write
from tests.unit.runtime.diary import app as diary_app
from tests.unit.runtime.tables import contents, memory_table
from tests.unit.runtime.worker import HOUR, NOW, ToldClock, Worker, ends, letters, made_by, stored

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
