"""Decisions: which deliveries are handled, replayed, held back or refused, alone and in groups."""

import msgpack
import pytest

from eventstore import Table, drive
from runtime import Envelope, Output, Processor
from runtime.algorithms.state_based.truncation import TruncationChoices, truncate_stream
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.versions.limits import MAX_STATE_BYTES
from tests.unit.runtime.diary import DIARY, SKY, Wrote, delivery, misbehave, ponder, write
from tests.unit.runtime.diary import app as diary_app
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

BAD_DEEDS = """
set an attribute, set in the dict, set and fail, fail, fail unspeakably, exit, recurse, return nothing,
return a message, return a dict, return a wrong value, return what does not come back, return an unknown field,
publish nothing, publish a number in a header, capture what is no data, capture twice
"""


BAD |= {
    f"a handler that does: {deed}": (misbehave(deed), "handler_error")
    for deed in " ".join(BAD_DEEDS.split()).split(", ")
}


@pytest.mark.parametrize("bad", BAD)
def test_a_dead_letter_has_its_reason_is_kept_once_as_it_was_and_costs_no_other_message_its_outcome(bad):
    envelope, reason = BAD[bad]
    undisturbed = Worker(memory_table()).process(write("a"), write("b"), write("c"))
    alone, table = memory_table(), memory_table()

    (outcome,) = Worker(alone).process(envelope)
    assert ends([outcome]) == [reason]
    assert outcome.error
    assert (outcome.version, outcome.outputs, outcome.envelope) == (None, (), envelope)
    (letter,) = letters(alone)
    assert (letter.envelope, letter.reason, letter.error) == (envelope, reason, outcome.error)
    assert made_by(alone) == []

    outcomes = Worker(table).process(write("a"), envelope, write("b"), envelope, write("c"))
    assert ends(outcomes) == ["processed", reason, "processed", reason, "processed"]
    assert outcomes[::2] == undisturbed
    assert made_by(table) == ["a", "b", "c"]
    kept = contents(table)
    assert Worker(table).process(envelope) == [outcomes[1]]
    assert contents(table) == kept


def test_a_captured_value_that_is_too_large_is_a_dead_letter(table, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(SKY, "colour", "x" * MAX_STATE_BYTES)

    outcomes = Worker(table).process(ponder("p"), write("a"))

    assert ends(outcomes) == ["processed", "state_too_large"]
    assert made_by(table) == ["p"]


REUSED = [
    (write("a", message_id="m-1"), write("b", message_id="m-1")),
    (
        delivery("m-1", "Ponder", {"diary": DIARY, "how": "fail"}),
        delivery("m-1", "Misbehave", {"diary": DIARY, "how": "fail"}),
    ),
]


@pytest.mark.parametrize(("first", "second"), REUSED, ids=["another body", "another type"])
def test_another_message_with_a_known_id_is_told_from_a_duplicate(table, first, second):
    outcomes = Worker(table).process(first, second, write("c"))
    (again,) = Worker(table).process(second._replace(headers={}))

    assert ends([*outcomes, again]) == ["processed", "id_reused", "processed", "id_reused"]
    assert "Version 1 was made by another message" in (again.error or "")
    assert made_by(table) == ["m-1", "c"]


def test_a_message_from_the_future_is_refused_when_it_is_more_than_an_hour_ahead_and_unknown(table):
    (first,) = Worker(table, clock=ToldClock(NOW - HOUR)).process(write("a", enqueued_at=NOW))
    (again,) = Worker(table).process(write("a", enqueued_at=NOW + 2 * HOUR))

    behind = Worker(table, clock=ToldClock(NOW - 2 * HOUR)).process(write("b", enqueued_at=NOW))

    assert ends([first, again, *behind]) == ["processed", "duplicate", "enqueued_in_future"]
    assert again.outputs == first.outputs


@pytest.mark.parametrize(
    ("diary", "end"),
    [
        ("x" * 506, "processed"),
        ("x" * 507, "key_too_long"),
        ("é" * 507, "key_too_long"),
        ("/" * 169, "key_too_long"),
    ],
)
def test_a_key_that_is_too_long_is_a_dead_letter(table, diary, end):
    (outcome,) = drive(Processor(diary_app, table, publish).process(write("a", diary=diary)))

    assert ends([outcome]) == [end]
    assert {partition == "_letters" for partition, _ in contents(table)} == {end == "key_too_long"}


# With `stop-stream`, new messages after a dead letter wait; known ones do not.


STOP = BatchContext("batch-1", on_error="stop-stream")


@pytest.mark.parametrize(
    ("known", "deliveries", "expected"),
    [
        (
            [],
            [write("a"), misbehave("fail"), write("b"), write("c")],
            ["processed", "handler_error", "held_back", "held_back"],
        ),
        ([], [delivery("m", "Write", {"diary": DIARY}), write("b")], ["invalid_body", "held_back"]),
        (
            [write("a"), write("b")],
            [misbehave("fail"), write("a"), write("c"), write("b")],
            ["handler_error", "duplicate", "held_back", "duplicate"],
        ),
        ([], [write("a"), misbehave("fail"), write("a")], ["processed", "handler_error", "duplicate"]),
    ],
)
def test_a_dead_letter_holds_new_messages_back_and_known_ones_replayed(table, known, deliveries, expected):
    first = Worker(table, batch="batch-0").process(*known)

    outcomes = Worker(table, batch=STOP).process(*deliveries)

    assert ends(outcomes) == expected
    assert not known or outputs(outcomes) == outputs(first)


def test_what_was_held_back_is_a_letter_and_later_messages_are_handled(table):
    Worker(table, batch=STOP).process(misbehave("fail"), write("a"))

    assert ends(Worker(table, batch="batch-2").process(write("a"), write("b"))) == ["held_back", "processed"]
    assert ends(Worker(table, batch=BatchContext("batch-3", is_redrive=True)).process(write("a"))) == [
        "processed"
    ]


# A message that is not newer than the horizon cannot be told from a duplicate: it is too late, and stores nothing.


HORIZON = NOW - 10 * DAY
LATE = BatchContext("batch-1", late="process")


def truncated_table(*, undated: bool = False) -> Table:
    """Return a table with a stream of which the message "cut" was cut away, and "kept" is kept."""
    table = memory_table()
    worker = Worker(table, clock=ToldClock(HORIZON))
    worker.process(write("cut", enqueued_at=None if undated else HORIZON))
    worker.process(write("kept", enqueued_at=HORIZON - DAY))
    rules = TruncationChoices(older_than=DAY, acknowledged_after=0, allow_undated=True).as_of(
        NOW, OpenBatches()
    )
    truncated = drive(truncate_stream(table, f"Diary-{DIARY}", rules, PATIENCE))
    assert truncated is not None
    assert truncated.versions == 1
    return table


@pytest.mark.parametrize(
    ("undated", "message", "batch", "end"),
    [
        (False, write("a", enqueued_at=HORIZON), None, "too_late"),
        (False, write("a", enqueued_at=HORIZON - 99 * DAY), None, "too_late"),
        (False, write("cut", enqueued_at=HORIZON), None, "too_late"),
        (False, write("a", enqueued_at=HORIZON + 1), None, "processed"),
        (False, write("kept", enqueued_at=HORIZON - DAY), None, "duplicate"),
        # One without a time is too late only where one without a time was cut.
        (False, write("a"), None, "processed"),
        (True, write("a"), None, "too_late"),
        (True, write("cut"), None, "too_late"),
        (True, write("a", enqueued_at=1), None, "processed"),
        (False, write("a", enqueued_at=HORIZON), LATE, "processed"),
    ],
)
def test_an_unknown_message_that_is_not_newer_than_the_horizon_is_too_late(undated, message, batch, end):
    table = truncated_table(undated=undated)
    before = contents(table)

    outcome, other = Worker(table, batch=batch).process(message, write("kept"))

    assert ends([outcome, other]) == [end, "duplicate"]
    if end == "processed":
        assert (outcome.version, made_by(table)) == (3, ["kept", "a"])
    else:
        assert contents(table) == before
    if end == "too_late":
        assert (outcome.version, outcome.outputs, outcome.reason) == (None, (), None)


# A handler must return its next state and leave the one it was given alone; what it breaks, it breaks for itself.


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
def test_an_unvalidated_result_is_stored_as_its_type_and_stops_no_later_message(table, deed, after):
    outcomes = Worker(table).process(write("a"), misbehave(deed), misbehave(deed, "m-2"), write("b"))
    later = Worker(table).process(misbehave(deed), write("c"))

    assert ends(outcomes) == ["processed"] * 4
    assert ends(later) == ["duplicate", "processed"]
    assert stored(table)[1].after == after
    # A result that only looks changed is recorded as no change.
    assert (stored(table)[2].record.after is None) == (deed != "return a list for a tuple")


# A processor with guard makes a dead letter of a message whose handler looks past its context, and stores nothing.


async def publish(_: Output) -> None: ...
