"""Two letters of one message id: each is redriven as itself, and no attempt at a batch takes one for the other."""

from contextlib import suppress

import pytest

from eventstore import drive
from runtime import Envelope
from runtime.algorithms.choice import AlgorithmName
from runtime.dead_letters import FoundLetter
from runtime.messages.envelope import canonical
from tests.unit.runtime.accidents import At, CrashError, crash, disturbed_once, lose_answer
from tests.unit.runtime.algorithms.world import ALGORITHMS
from tests.unit.runtime.dead_letters.post import DAMAGED, PostOffice, parcel
from tests.unit.runtime.worker import ends

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
def office(request: pytest.FixtureRequest) -> PostOffice:
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
def test_both_mended_in_one_redrive_end_alike_in_all_attempts(office: PostOffice, mended, ended, left, state):
    chosen = list(zip(both(office), map(named, mended.split()), strict=True))

    for _ in range(2):
        assert ends(office.attempt_redrive(9, chosen)) == ended
        assert bodies(office) == left
    assert office.state() == state


def test_of_two_that_are_mended_to_the_same_message_none_is_left(office: PostOffice):
    first, second = both(office)

    outcomes = office.attempt_redrive(9, [(first, named("ok")), (second, named("ok"))])

    assert ends(outcomes)[0] == "processed"
    assert bodies(office) == []
    assert office.state() == ["ok"]


def test_the_second_alone_leaves_the_first_as_it_was(office: PostOffice):
    _, second = both(office)

    office.attempt_redrive(9, [(second, named("y"))])
    assert [number for number, *_, tries in bodies(office) if tries == 2] == [2]
    assert ends(office.attempt_redrive(10, [(both(office)[1], named("ok"))])) == ["processed"]

    assert bodies(office) == [waits(1, "a", tries=1)]


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


def test_a_mended_copy_that_is_processed_elsewhere_changes_no_attempt(office: PostOffice):
    (outcome,) = drive(office.processor().process(named("ok")))
    assert outcome.status == "processed"
    assert office.letters() == []

    again = office.attempt(office.table, 1, [named("a"), named("c")])

    assert ends(again) == ["handler_error", "handler_error"]


@pytest.mark.parametrize("elsewhere", ["batch", "single message"])
def test_a_message_that_was_sent_in_again_and_processed_is_a_duplicate_for_a_redrive_that_comes_to_its_letter(
    office: PostOffice, elsewhere: str
):
    first, _ = both(office)
    send_in(office, named("ok"), elsewhere)

    for _ in range(2):
        assert ends(office.attempt_redrive(90, [(first, named("ok"))])) == ["duplicate"]

    assert ends(drive(office.processor().redrive(named("ok")))) == ["duplicate"]
    assert office.letters() == []
    assert office.state() == ["ok"]


def test_its_unmended_body_is_another_message_by_then_and_waits_as_a_letter(office: PostOffice):
    send_in(office, named("ok"), "single message")

    assert ends(drive(office.processor().redrive(named("a")))) == ["id_reused"]

    assert bodies(office) == [(3, str(named("a").body), "id_reused", 1)]
    assert office.state() == ["ok"]


@pytest.mark.parametrize("elsewhere", ["batch", "single message"])
def test_what_an_attempt_at_a_redrive_has_refused_stays_so_when_the_message_is_processed_before_it_resumes(
    office: PostOffice, elsewhere: str
):
    first, _ = both(office)
    refused = office.attempt_redrive(90, [(first, named("x"))])
    assert ends(refused) == ["handler_error"]
    DAMAGED.remove("x")

    send_in(office, named("x"), elsewhere)

    assert office.attempt_redrive(90, [(first, named("x"))]) == refused
    assert office.letters() == []
    assert ends(office.attempt_redrive(91, [(first, named("x"))])) == ["duplicate"]
    assert office.state() == ["x"]


def send_in(office: PostOffice, message: Envelope, way: str) -> None:
    """Let a message be processed that no redrive has sent."""
    if way == "batch":
        office.number = 50
        outcomes = office.batch(message)
    else:
        outcomes = drive(office.processor().process(message))
    assert ends(outcomes) == ["processed"]
