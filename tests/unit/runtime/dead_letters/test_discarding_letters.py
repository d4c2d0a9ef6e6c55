"""A letter that is discarded is given up: its delivery is gone, and its message stays refused."""

import pytest

from eventstore import StoreUnavailableError, drive
from runtime.dead_letters import Selection, discard
from runtime.versions.dead_letter_rows import PREFIX
from tests.unit.runtime.accidents import At, CrashError, crash, disturbed_once, lose_answer
from tests.unit.runtime.algorithms.world import ALGORITHMS
from tests.unit.runtime.dead_letters.post import ALL, DAMAGED, PostOffice, parcel
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import rows
from tests.unit.runtime.worker import ends

FIRST = Selection(message_id="first")


@pytest.fixture(params=ALGORITHMS[:3])
def office(request: pytest.FixtureRequest) -> PostOffice:
    """Give a table with a stream that a first letter parks."""
    office = PostOffice(request.param)
    DAMAGED.add("first")
    office.batch(parcel("first"), parcel("second"), park=True)
    return office


def test_its_message_stays_refused_with_the_reason_it_had_also_for_a_redrive_that_began_before(
    office: PostOffice,
):
    chosen = office.letters()
    (outcome,) = office.batch(parcel("first"))
    assert office.discard(FIRST) == 1
    DAMAGED.clear()

    assert office.batch(parcel("first")) == [outcome]
    assert office.names() == ["second"]
    # What waited behind it is free, once the second one is redriven
    assert ends(office.batch(parcel("third"))) == ["held_back"]
    assert ends(office.redrive(*chosen)) == ["handler_error", "processed"]
    assert ends(office.redrive()) == ["processed"]
    assert ends(office.batch(parcel("fourth"))) == ["processed"]


def test_its_delivery_is_gone_from_the_table(office: PostOffice):
    def size() -> int:
        kept = [properties for (_, key), properties in rows(office.table).items() if key.startswith(PREFIX)]
        return sum(len(value) for properties in kept for value in properties.values())

    before = size()
    assert office.discard() == 2
    assert size() < before
    assert office.letters() == []
    assert office.discard() == 0


@pytest.mark.parametrize("disturbance", [crash, lose_answer])
def test_a_crash_or_a_lost_answer_leaves_it_a_letter_or_given_up(office: PostOffice, disturbance):
    for number in range(1, 20):
        try:
            drive(discard(disturbed_once(office.table, At(number, disturbance)), ALL, PATIENCE))
        except (CrashError, StoreUnavailableError):
            assert office.names() in (["first", "second"], [])
        if not office.letters():
            break

    assert office.letters() == []
    assert ends(office.batch(parcel("first"), parcel("second"))) == ["handler_error", "held_back"]
