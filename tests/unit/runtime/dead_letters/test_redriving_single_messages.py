"""A consumer redrives a letter beside the batch that refused it: nothing is lost, doubled, or told in two ways."""

from contextlib import suppress

import pytest

from eventstore import InterceptedTable, drive
from runtime import Outcome, Processor
from runtime.algorithms.choice import AlgorithmName, published_by_nobody
from runtime.ledger.ledger import Ledger
from tests.unit.runtime.accidents import CrashError
from tests.unit.runtime.algorithms.world import ALGORITHMS
from tests.unit.runtime.dead_letters.post import DAMAGED, PostOffice, app, parcel
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.worker import ends

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


@pytest.mark.parametrize("algorithm", ALGORITHMS[:3])
@pytest.mark.parametrize("dies", [True, False])
def test_at_each_call_of_a_batch_a_redrive_changes_none_of_its_outcomes(algorithm: AlgorithmName, dies: bool):
    number, reached = 0, True
    while reached:
        number, reached = number + 1, False
        office = PostOffice(algorithm)
        begun(office)
        DAMAGED.add("a")
        # Given that the batch refused a, and what was wrong with it is mended since
        first = office.attempt(office.table, 1, MESSAGES)
        DAMAGED.clear()
        calls = 0

        def beside(*_: object, office: PostOffice = office, number: int = number) -> None:
            nonlocal calls, reached
            calls += 1
            if calls == number:
                reached = True
                assert redrive(office, "a").is_dead_letter
                if dies:
                    raise CrashError

        with suppress(CrashError):
            watched = InterceptedTable(office.table, before=beside, after=beside)
            assert ends(office.attempt(watched, 1, MESSAGES)) == ends(first)
        assert ends(office.attempt(office.table, 1, MESSAGES)) == ends(first)
        assert office.names() == ["a", "e"]
        assert office.state() == ["b"]
    assert number > 2


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
