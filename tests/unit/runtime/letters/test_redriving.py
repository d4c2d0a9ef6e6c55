"""A redrive handles letters again: all its attempts agree, and a stream that is parked is redriven in order."""

from contextlib import suppress

import pytest

from eventstore import InterceptedTable
from tests.unit.runtime.algorithms.world import ALGORITHMS, At, CrashError, crash, lose_answer
from tests.unit.runtime.letters.post import DAMAGED, PostOffice, deliveries, parcel
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import ends


def office_with_letters(algorithm) -> PostOffice:
    """Return a table where e waits, which stands on d, and d behind it, which is mended by now."""
    office = PostOffice(algorithm, memory_table())
    DAMAGED.add("d")
    office.batch(parcel("e"), parcel("d"))
    DAMAGED.clear()
    return office


@pytest.mark.parametrize("disturbance", [crash, lose_answer])
@pytest.mark.parametrize("algorithm", ALGORITHMS[:3])
def test_what_a_redrive_refuses_again_stays_refused_in_its_other_attempts(algorithm, disturbance):
    for number in range(1, 9):
        office = office_with_letters(algorithm)
        chosen = deliveries(office.letters())
        at = At(number, disturbance)

        def disturb(*_: object, at: At = at) -> None:
            at("call")

        disturbed = InterceptedTable(office.table, before=disturb, after=disturb)
        with suppress(CrashError):
            office.attempt(disturbed, 9, chosen, is_redrive=True)
        outcomes = office.attempt(office.table, 9, chosen, is_redrive=True)

        assert ends(outcomes) == ["handler_error", "processed"]
        assert [(found.letter.message_id, found.letter.tries) for found in office.letters()] == [("e", 2)]
        assert ends(office.redrive()) == ["processed"]
        assert office.state() == ["d", "e"]


@pytest.mark.parametrize("algorithm", ALGORITHMS[:3])
def test_a_parked_stream_is_redriven_in_order_until_one_is_refused(algorithm):
    office = PostOffice(algorithm)
    DAMAGED.update({"a", "c"})
    office.batch(parcel("a"), parcel("b"), park=True)
    office.batch(parcel("c"), parcel("d"))
    assert office.names() == ["a", "b", "c", "d"]
    DAMAGED.remove("a")

    assert ends(office.redrive()) == ["processed", "processed", "handler_error", "held_back"]

    assert office.state() == ["a", "b"]
    assert [(found.letter.message_id, found.letter.tries) for found in office.letters()] == [
        ("c", 2),
        ("d", 1),
    ]
    assert ends(office.batch(parcel("f"))) == ["held_back"]


@pytest.mark.parametrize("algorithm", ALGORITHMS[:3])
def test_a_follower_that_is_redriven_alone_stays_where_it_is(algorithm):
    office = PostOffice(algorithm)
    DAMAGED.add("a")
    office.batch(parcel("a"), parcel("b"), park=True)

    assert ends(office.redrive(office.letters()[1])) == ["held_back"]

    assert [(found.letter.message_id, found.letter.tries) for found in office.letters()] == [
        ("a", 1),
        ("b", 1),
    ]
