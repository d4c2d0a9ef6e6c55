"""The letters of a table are found stream by stream, all or those that are meant."""

import pytest

from eventstore import InterceptedTable, drive
from runtime.dead_letters import Selection, find_letters
from runtime.errors import UsageError
from runtime.messages.outcome import Reason
from tests.unit.runtime.algorithms.world import ALGORITHMS
from tests.unit.runtime.dead_letters.post import ALL, DAMAGED, PostOffice, parcel
from tests.unit.runtime.worker import HOUR, NOW

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
    """So whoever redrives what is new does not try for ever."""
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
