"""What reaches no stream is a letter of the table: one row for each, however often it is delivered."""

import json

import pytest

from eventstore import drive
from runtime import Envelope
from runtime.dead_letters import (
    PARTITION,
    FoundLetter,
    Selection,
    TableLetters,
    letters_of_table,
    remove,
    row_key,
)
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import Ledger
from runtime.messages.outcome import Outcome, Reason, dead_letter
from runtime.versions import limits
from tests.unit.runtime.dead_letters.post import ALL, PostOffice, parcel
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import rows
from tests.unit.runtime.worker import ToldClock

STRANGE = Envelope("m-1", "Strange", "{}", enqueued_at=7, headers={"a": "b"})


def refused(envelope: Envelope = STRANGE, handler: str | None = None) -> Outcome:
    return dead_letter(envelope, Reason.UNKNOWN_TYPE, "Nobody takes it.", handler)


def keep(table, *outcomes: Outcome, batch: BatchContext = BatchContext("batch-1", number=1)) -> None:  # noqa: B008
    drive(TableLetters(table, batch, ToldClock(), PATIENCE).keep(outcomes))


def found(table, selection: Selection = ALL) -> list[FoundLetter]:
    async def read():
        return [letter async for letter in letters_of_table(table, selection)]

    return drive(read())


def test_it_is_the_delivery_as_it_was_and_no_other_outcome_is_kept(table):
    keep(table, refused(), *PostOffice().batch(parcel("a")))

    (letter,) = found(table)

    assert letter.letter.envelope == STRANGE
    assert (letter.handler, letter.business_id) == (None, None)
    assert (letter.letter.reason, letter.letter.error) == (Reason.UNKNOWN_TYPE, "Nobody takes it.")
    assert (letter.letter.batch, letter.letter.tries) == ("batch-1", 1)


def test_copies_and_other_attempts_add_nothing(table):
    keep(table, refused(), refused())
    before = rows(table)

    keep(table, refused())
    keep(table, refused(), batch=BatchContext("batch-2", number=2))
    assert rows(table) == before
    # ... but another delivery of the message does, and one of them for a handler alone
    keep(table, refused(), refused(STRANGE._replace(sequence=2)), refused(handler="Boxes"))
    assert len(found(table)) == 3
    assert [each.handler for each in found(table, Selection(handler="Boxes"))] == ["Boxes"]
    # ... and a redrive that refuses it again counts its tries once
    redrive = BatchContext("redrive", is_redrive=True, number=2)
    for _ in "ab":
        keep(table, refused(), batch=redrive)
    assert sorted(each.letter.tries for each in found(table)) == [1, 1, 2]


def test_a_letter_that_was_refused_again_is_not_removed(table):
    keep(table, refused())
    (before,) = found(table)
    assert before.row == row_key(None, STRANGE)
    keep(table, refused(), batch=BatchContext("redrive", is_redrive=True))

    assert not drive(remove(table, before.row, before.etag or ""))
    (after,) = found(table)
    assert drive(remove(table, before.row, after.etag or ""))
    assert not drive(remove(table, before.row, after.etag or ""))
    assert found(table) == []


def test_a_task_adds_no_more_than_its_limit_and_none_that_is_too_large_for_a_row(table, monkeypatch):
    monkeypatch.setattr(limits, "MAX_TASK_LETTERS", 120)
    bodies = ["x" * limits.MAX_LETTER_BYTES, *["x" * 600_000] * 12, *["{}"] * 188]
    many = [
        refused(STRANGE._replace(message_id=f"m-{number}", body=body)) for number, body in enumerate(bodies)
    ]

    keep(table, *many)
    assert len(found(table)) == 120
    # ... but a redrive keeps all that it refuses
    keep(table, *many, batch=BatchContext("redrive", is_redrive=True))
    assert len(found(table)) == 200


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (STRANGE, "unknown_type"),
        (Envelope("m", "Parcel", json.dumps({"name": "x"})), "no_business_id"),
        (Envelope("m", "Parcel", "{"), "invalid_body"),
        (parcel("m", "x" * 600), "key_too_long"),
    ],
)
def test_a_single_message_that_reaches_no_stream_is_one_too(table, message: Envelope, reason: str):
    for _ in range(2):
        (outcome,) = drive(PostOffice(table=table).processor().process(message))

    assert outcome.reason == reason
    (letter,) = found(table)
    assert (letter.letter.envelope, letter.letter.reason, letter.letter.batch) == (message, reason, None)
    assert {partition for partition, _ in rows(table)} == {PARTITION}


def test_a_redriven_message_is_a_letter_no_more(table):
    a, b = parcel("a"), parcel("b")
    letters = [refused(a), refused(a, "Boxes"), refused(a, "Others"), refused(b)]
    keep(table, *letters, batch=BatchContext())

    drive(PostOffice(table=table).processor().redrive(a))

    assert {(each.letter.message_id, each.handler) for each in found(table)} == {("a", "Others"), ("b", None)}


def test_a_mended_message_is_the_first_letter_of_its_id(table):
    broken, reused = (Envelope("m", "Parcel", body) for body in ("{", "]"))
    processor = PostOffice(table=table).processor()
    for message in (broken, reused):
        drive(processor.process(message))

    (outcome,) = drive(processor.redrive(parcel("m")))

    assert outcome.status == "processed"
    assert [each.letter.envelope for each in found(table)] == [reused]


def test_one_that_is_refused_again_stays_a_letter(table):
    processor = PostOffice(table=table).processor()
    for _ in range(2):
        drive(processor.process(STRANGE))

    drive(processor.redrive(STRANGE))
    assert [each.letter.tries for each in found(table)] == [2]
    drive(processor.redrive(STRANGE._replace(type="Stranger")))
    assert [each.letter.envelope for each in found(table)] == [STRANGE._replace(type="Stranger")]


def test_the_letter_of_an_open_batch_waits_until_it_has_ended(table):
    ledger = Ledger(table, ToldClock(), PATIENCE)
    drive(ledger.begin("batch-1", "log", "out", "state-based"))
    keep(table, refused(parcel("a")))

    drive(PostOffice(table=table).processor().redrive(parcel("a")))
    assert len(found(table)) == 1
    drive(ledger.abandon("batch-1"))
    drive(PostOffice(table=table).processor().redrive(parcel("a")))
    assert found(table) == []
