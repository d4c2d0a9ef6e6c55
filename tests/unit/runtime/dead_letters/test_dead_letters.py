"""Dead letters are found, discarded and redriven, with a stream or without one."""

import json
from contextlib import suppress
from random import Random

import pytest

from eventstore import InterceptedTable, Operation, drive
from eventstore import limits as store_limits
from runtime import Envelope, Processor
from runtime.algorithms.choice import AlgorithmName, published_by_nobody
from runtime.dead_letters import (
    PARTITION,
    FoundLetter,
    Selection,
    TableLetters,
    discard,
    find_letters,
    letters_of_table,
    remove,
    row_key,
    streams_with_letters,
)
from runtime.errors import UsageError
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import Ledger
from runtime.maintenance.forget import Tables, forget
from runtime.messages.envelope import canonical
from runtime.messages.outcome import Outcome, Reason, dead_letter
from runtime.versions import limits
from tests.unit.runtime.accidents import At, CrashError, crash, disturbed, disturbed_once, lose_answer
from tests.unit.runtime.algorithms.world import ALGORITHMS
from tests.unit.runtime.dead_letters.post import ALL, DAMAGED, PostOffice, app, parcel
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import rows
from tests.unit.runtime.worker import HOUR, NOW, ToldClock, ends

UUID, UUID_TEXT = "7D4448409DC011D1B2455FFDCE74FAD2", "7d444840-9dc0-11d1-b245-5ffdce74fad2"


@pytest.fixture(params=ALGORITHMS[:3])
def office(request: pytest.FixtureRequest) -> PostOffice:
    """Give a table with letters in two boxes, and one without."""
    office = PostOffice(request.param)
    DAMAGED.update({"a", "c", UUID})
    office.batch(parcel("a"), parcel("b"), park=True)
    office.clock.now = NOW + HOUR
    office.batch(parcel("c", "c"), parcel("d", "c"), parcel(UUID, "c"), box="c")
    office.batch(parcel("f", "d"), box="d")
    return office


def test_all_are_found_in_the_order_of_streams_and_numbers(office: PostOffice):
    found = office.letters()

    error, held = Reason.HANDLER_ERROR, Reason.HELD_BACK
    assert [(each.business_id, each.name, each.letter.reason) for each in found] == [
        ("b", "1", error), ("b", "2", held), ("c", "1", error), ("c", "2", error),
    ]  # fmt: skip
    assert {each.handler for each in found} == {"Boxes"}
    # What is held back is behind the letter that parks its stream
    assert [each.behind and each.behind.message_id for each in found] == [None, "a", None, None]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(message_id="c"), ["c"]),
        (Selection(message_id=UUID.lower()), [UUID_TEXT]),
        (Selection(reason=Reason.HELD_BACK), ["b"]),
        (Selection(reason="held_back"), ["b"]),
        (Selection(handler="Boxes", message_id="a"), ["a"]),
        (Selection(handler="Box"), []),
        (Selection(stream=("Boxes", "b")), ["a", "b"]),
        (Selection(stream=("Boxes", "d")), []),
        (Selection(stream=("Boxes", "nowhere")), []),
        (Selection(refused_until=NOW), ["a", "b"]),
        (Selection(refused_until=NOW, reason="handler_error"), ["a"]),
        (Selection(refused_until=NOW - 1), []),
        (Selection(reason=("handler_error", Reason.HELD_BACK)), ["a", "b", "c", UUID_TEXT]),
        (Selection(refused_since=NOW + 1), ["c", UUID_TEXT]),
        (Selection(refused_since=NOW, refused_until=NOW), ["a", "b"]),
        (Selection(refused_since=NOW + HOUR + 1), []),
    ],
)
def test_those_are_found_to_which_all_applies(office: PostOffice, selection: Selection, expected):
    assert office.names(selection) == expected


@pytest.mark.parametrize("algorithm", ALGORITHMS[:3])
@pytest.mark.parametrize("type_", ["Parcel", "Unheard"], ids=["of a stream", "of the table"])
def test_a_letter_that_is_refused_again_keeps_when_it_was_refused_first(algorithm, type_):
    office, message = PostOffice(algorithm), parcel("a")._replace(type=type_)
    DAMAGED.add("a")
    drive(office.processor().process(message))
    for tries in (2, 3):
        office.clock.now = NOW + tries * HOUR
        drive(office.processor().redrive(message))
        (letter,) = (found.letter for found in office.letters())
        assert (letter.tries, letter.refused_at, letter.since) == (tries, NOW + tries * HOUR, NOW)
    assert office.names(Selection(refused_since=NOW)) == ["a"]
    assert office.names(Selection(refused_since=NOW + 1)) == []


def test_a_reason_that_there_is_not_is_refused():
    with pytest.raises(UsageError, match=r"'weather' is not a reason. Use one of invalid_envelope, "):
        Selection(reason="weather")


def test_streams_without_letters_cost_no_request_of_their_own():
    office = PostOffice()
    for number in range(50):
        office.batch(parcel("p", f"box-{number}"), box=f"box-{number}")
    DAMAGED.add("bad")
    office.batch(parcel("bad"))
    counted = InterceptedTable(office.table)

    async def read() -> list[str]:
        return [found.letter.message_id async for found in find_letters(counted, ALL)]

    assert drive(read()) == ["bad"]
    assert counted.calls == 4  # headers, entities, the letters of one stream, those of the table


@pytest.fixture(params=ALGORITHMS[:3])
def parked(request: pytest.FixtureRequest) -> PostOffice:
    """Give a table with a stream that a first letter parks."""
    office = PostOffice(request.param)
    DAMAGED.add("first")
    office.batch(parcel("first"), parcel("second"), park=True)
    return office


def test_its_message_stays_refused_with_the_reason_it_had_also_for_a_redrive_that_began_before(parked):
    office, chosen = parked, parked.letters()
    (outcome,) = office.batch(parcel("first"))
    assert office.discard(Selection(message_id="first")) == 1
    DAMAGED.clear()

    assert office.batch(parcel("first")) == [outcome]
    assert office.names() == ["second"]
    # What waited behind it is free, once the second one is redriven
    assert ends(office.batch(parcel("third"))) == ["held_back"]
    assert ends(office.redrive(*chosen)) == ["handler_error", "processed"]
    assert ends(office.redrive()) == ["processed"]
    assert ends(office.batch(parcel("fourth"))) == ["processed"]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(1, 4))
def test_all_that_were_discarded_are_counted_if_an_answer_is_lost(
    office: PostOffice, number: int, after: bool
):
    drive(office.processor().process(parcel("u")._replace(type="Unheard")))
    unanswered = disturbed(office.table, lose_answer, numbers=[number], after=after)

    assert drive(discard(unanswered, ALL, PATIENCE)) == 5
    assert office.names() == []


MESSAGES = [parcel("a"), parcel("b"), parcel("e")]  # e stands on d, which is not there


def begun(office: PostOffice) -> Ledger:
    """Return the ledger of a table in which a batch has begun."""
    ledger = Ledger(office.table, office.clock, PATIENCE)
    assert drive(ledger.begin("batch-1", "log", "out", office.algorithm)).number == 1
    return ledger


def redrive(office: PostOffice, name: str) -> Outcome:
    (outcome,) = drive(office.processor().redrive(parcel(name)))
    return outcome


@pytest.mark.parametrize("algorithm", ALGORITHMS[:3])
def test_a_letter_of_an_open_batch_stays_refused_until_the_batch_has_ended(algorithm: AlgorithmName):
    office = PostOffice(algorithm)
    ledger = begun(office)
    DAMAGED.add("a")
    refused = office.attempt(office.table, 1, MESSAGES)
    DAMAGED.clear()

    assert redrive(office, "a").reason == "handler_error"
    assert ends(office.attempt(office.table, 1, MESSAGES)) == ends(refused)
    assert [found.letter.tries for found in office.letters()] == [1, 1]
    drive(ledger.abandon("batch-1"))

    assert redrive(office, "a").status == "processed"
    assert redrive(office, "a").status == "duplicate"
    assert office.names() == ["e"]
    assert office.state() == ["b", "a"]


def test_what_a_consumer_refused_itself_is_redriven_at_any_time_at_the_cost_of_two_requests_more():
    office = PostOffice()
    begun(office)
    DAMAGED.add("a")
    drive(office.processor().process(parcel("a")))
    DAMAGED.clear()
    assert redrive(office, "a").status == "processed"
    assert office.letters() == []

    counted = InterceptedTable(office.table)
    drive(Processor(app, counted, published_by_nobody).process(parcel("c")))
    usual = counted.calls
    counted.counts.clear()
    drive(Processor(app, counted, published_by_nobody).redrive(parcel("b")))
    assert counted.calls == usual + 2


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


@pytest.mark.parametrize("algorithm", ALGORITHMS[:3])
def test_letters_of_more_rows_than_a_transaction_takes_are_redriven_dropped_and_discarded(
    algorithm, monkeypatch
):
    for module, name, most in (
        (limits, "MAX_ROW_LETTERS", 1),
        (limits, "MAX_TRANSACTION_LETTER_ROWS", 4),
        (store_limits, "MAX_OPERATIONS", 9),
    ):
        monkeypatch.setattr(module, name, most)
    office, names = PostOffice(algorithm), [f"m{number}" for number in range(20)]
    DAMAGED.update(names)

    assert ends(office.batch(*map(parcel, names))) == ["handler_error"] * 20
    DAMAGED.difference_update(names[:10])
    assert ends(office.redrive()) == ["processed"] * 10 + ["handler_error"] * 10
    # What was decided is kept until the batches have ended.
    ledger = Ledger(office.table, ToldClock(), PATIENCE)
    for batch in ("batch-1", "batch-2"):
        drive(ledger.begin(batch, "log", "out", algorithm))
        drive(ledger.abandon(batch))
    drive(office.processor().redrive(parcel("m19")))
    assert office.discard() == 10

    assert (office.names(), office.state()) == ([], names[:10])


def test_letters_and_versions_that_do_not_fit_one_transaction_together_are_stored_in_several(monkeypatch):
    monkeypatch.setattr(store_limits, "SURELY_SMALL_BYTES", 0)
    monkeypatch.setattr(store_limits, "MAX_TRANSACTION_BYTES", 24_000)
    office, texts = PostOffice(), [Random(number).randbytes(800).hex() for number in range(10)]
    DAMAGED.update(texts[::2])

    outcomes = office.batch(*[parcel(text)._replace(message_id=text[:9]) for text in texts])

    assert ends(outcomes) == ["handler_error", "processed"] * 5
    assert office.names() == [text[:9] for text in texts[::2]]
    assert office.state() == texts[1::2]


@pytest.mark.parametrize("algorithm", ALGORITHMS[:3])
def test_rejections_beyond_the_limit_of_a_stream_are_counted(algorithm, monkeypatch):
    monkeypatch.setattr(limits, "MAX_LETTERS", 1)
    DAMAGED.update("abcd")
    office = PostOffice(algorithm)
    office.batch(parcel("a"), parcel("b"))
    for name in "cd":
        drive(office.processor().process(parcel(name)))

    assert office.names() == ["a"]

    async def counted():
        return [each async for each in streams_with_letters(office.table, ALL)]

    (found,) = drive(counted())
    assert (found.waiting, found.beyond_limit) == (1, 3)


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


ONE_ID = canonical("m")


def named(name: str) -> Envelope:
    """Return a parcel of some name, always under the same message id."""
    return parcel(name)._replace(message_id=ONE_ID)


def bodies(office: PostOffice) -> list[tuple[int, str, str, int]]:
    """Return the letters that wait: number, body, reason and tries."""
    return [
        (found.letter.number, str(envelope.body), found.letter.reason.value, found.letter.tries)
        for found in office.letters()
        if (envelope := found.letter.envelope)
    ]


@pytest.fixture(params=ALGORITHMS[:3])
def of_one_id(request: pytest.FixtureRequest) -> PostOffice:
    """Give a table with two letters of one id: parcels a and c, which are damaged."""
    office = PostOffice(request.param)
    DAMAGED.update("acxy")
    office.batch(named("a"), named("c"))
    return office


def both(office: PostOffice) -> tuple[FoundLetter, FoundLetter]:
    first, second = office.letters()
    return first, second


def waits(number: int, name: str, reason: str = "handler_error", tries: int = 2) -> tuple[int, str, str, int]:
    return number, str(named(name).body), reason, tries


@pytest.mark.parametrize(
    ("mended", "ended", "left", "state"),
    [
        # Those that are refused again keep what each was mended to, and the other attempt changes nothing.
        ("x y", ["handler_error", "handler_error"], [waits(1, "x"), waits(2, "y")], []),
        # Of two different messages one is processed, and one stays.
        ("ok other", ["processed", "id_reused"], [waits(2, "other", "id_reused")], ["ok"]),
        # One that is refused before the other is processed stays refused in all attempts.
        ("x ok", ["handler_error", "processed"], [waits(1, "x")], ["ok"]),
    ],
)
def test_both_mended_in_one_redrive_end_alike_in_all_attempts(of_one_id, mended, ended, left, state):
    chosen = list(zip(both(of_one_id), map(named, mended.split()), strict=True))

    for _ in range(2):
        assert ends(of_one_id.attempt_redrive(9, chosen)) == ended
        assert bodies(of_one_id) == left
    assert of_one_id.state() == state


@pytest.mark.parametrize("between", ["nothing", "old code", "forgetting"])
@pytest.mark.parametrize("algorithm", ALGORITHMS[:3])
def test_a_redrive_that_resumes_leaves_the_letters_that_came_after_its_own(algorithm: AlgorithmName, between):
    office = PostOffice(algorithm)
    DAMAGED.update("ax")
    drive(office.processor().process(parcel("a")))
    redriven = [(found, None) for found in office.letters()]
    if between == "old code":
        ((place, stored),) = [each for each in rows(office.table).items() if "LastLetter" in each[1]]
        before = {name: value for name, value in stored.items() if name != "LastLetter"}
        drive(office.table.transact(place[0], [Operation.replace(place[1], before)]))
    DAMAGED.remove("a")
    assert ends(office.attempt_redrive(9, redriven)) == ["processed"]
    if between == "forgetting":
        tables = Tables(*[office.table] * 3)
        drive(forget(tables, "Boxes", "b", NOW, restart=True, retries=PATIENCE))
    drive(office.processor().process(parcel("x", enqueued_at=NOW + 1)))

    office.attempt_redrive(9, redriven)

    first, *_ = office.letters()
    assert (first.name, first.letter.message_id) == ("2", "x")


@pytest.mark.parametrize("disturbance", [crash, lose_answer])
@pytest.mark.parametrize("algorithm", ALGORITHMS[:3])
def test_all_attempts_at_a_batch_agree_on_two_messages_of_one_id(algorithm: AlgorithmName, disturbance):
    DAMAGED.add("a")
    messages = [named("a"), named("ok")]
    undisturbed = PostOffice(algorithm).attempt(PostOffice(algorithm).table, 1, messages)
    assert ends(undisturbed) == ["handler_error", "processed"]

    for number in range(1, 9):
        office = PostOffice(algorithm)
        with suppress(CrashError):
            office.attempt(disturbed_once(office.table, At(number, disturbance)), 1, messages)
        outcomes = office.attempt(office.table, 1, messages)

        assert ends(outcomes) == ends(undisturbed)
        assert outcomes[0] == undisturbed[0]
        assert office.letters() == []  # the other one is taken for its mended message
        assert office.state() == ["ok"]


def test_a_mended_copy_that_is_processed_elsewhere_changes_no_attempt(of_one_id: PostOffice):
    (outcome,) = drive(of_one_id.processor().process(named("ok")))
    assert outcome.status == "processed"
    assert of_one_id.letters() == []

    again = of_one_id.attempt(of_one_id.table, 1, [named("a"), named("c")])

    assert ends(again) == ["handler_error", "handler_error"]


@pytest.mark.parametrize("elsewhere", ["batch", "single message"])
def test_a_message_that_was_sent_in_again_and_processed_is_a_duplicate_for_a_redrive_that_comes_to_its_letter(
    of_one_id: PostOffice, elsewhere: str
):
    first, _ = both(of_one_id)
    send_in(of_one_id, named("ok"), elsewhere)

    for _ in range(2):
        assert ends(of_one_id.attempt_redrive(90, [(first, named("ok"))])) == ["duplicate"]

    assert ends(drive(of_one_id.processor().redrive(named("ok")))) == ["duplicate"]
    assert of_one_id.letters() == []
    assert of_one_id.state() == ["ok"]


def test_its_unmended_body_is_another_message_by_then_and_waits_as_a_letter(of_one_id: PostOffice):
    send_in(of_one_id, named("ok"), "single message")

    assert ends(drive(of_one_id.processor().redrive(named("a")))) == ["id_reused"]

    assert bodies(of_one_id) == [(3, str(named("a").body), "id_reused", 1)]
    assert of_one_id.state() == ["ok"]


@pytest.mark.parametrize("elsewhere", ["batch", "single message"])
def test_what_an_attempt_at_a_redrive_has_refused_stays_so_when_the_message_is_processed_before_it_resumes(
    of_one_id: PostOffice, elsewhere: str
):
    first, _ = both(of_one_id)
    refused = of_one_id.attempt_redrive(90, [(first, named("x"))])
    assert ends(refused) == ["handler_error"]
    DAMAGED.remove("x")

    send_in(of_one_id, named("x"), elsewhere)

    assert of_one_id.attempt_redrive(90, [(first, named("x"))]) == refused
    assert of_one_id.letters() == []
    assert ends(of_one_id.attempt_redrive(91, [(first, named("x"))])) == ["duplicate"]
    assert of_one_id.state() == ["x"]


def send_in(office: PostOffice, message: Envelope, way: str) -> None:
    """Let a message be processed that no redrive has sent."""
    if way == "batch":
        office.number = 50
        outcomes = office.batch(message)
    else:
        outcomes = drive(office.processor().process(message))
    assert ends(outcomes) == ["processed"]
