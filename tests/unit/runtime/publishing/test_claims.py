"""Of two runners one at a time sends a slice, and whoever was too slow finds that out."""

from __future__ import annotations

from datetime import timedelta

import pytest

from eventstore import connect, drive
from runtime.errors import LeaseLostError
from runtime.publishing.claims import Claims
from runtime.publishing.publisher import Refused
from runtime.publishing.records import Publications
from tests.support.clocks import FrozenClock

MINUTE = timedelta(minutes=1)
HALF = 30_000_000


class Runners:
    """Two runners on the table of one publication, and the time."""

    def __init__(self):
        self.time = FrozenClock.at("2026-03-01T12:00:00")
        self._later = 0
        table = drive(connect("memory:").table("games"))
        self.publications = Publications(table, self.now)
        self.publication = drive(self.publications.begin("b1-x", "sqlite:///x", 2, 1))
        self.ada, self.grace = (
            Claims(table, self.now, self.publication, name, MINUTE) for name in ("ada", "grace")
        )

    def now(self):
        return self.time() + self._later

    def wait(self, microseconds):
        self._later += microseconds

    def found(self):
        return drive(self.publications.slices(self.publication)).get(0)


@pytest.fixture
def runners():
    return Runners()


def test_the_second_one_waits(runners):
    drive(runners.ada.take(0, None))

    assert drive(runners.grace.take(0, None)) is None
    assert not runners.grace.is_free(runners.found())


def test_a_claim_that_is_renewed_is_kept(runners):
    claim = drive(runners.ada.take(0, None))
    for _ in range(3):
        runners.wait(HALF)
        drive(claim.renew())

    assert not runners.grace.is_free(runners.found())


def test_whoever_was_too_slow_finds_that_out_and_changes_nothing(runners):
    slow = drive(runners.ada.take(0, None))
    drive(slow.note(5))
    runners.wait(3 * HALF)
    assert runners.grace.is_free(runners.found())
    quick = drive(runners.grace.take(0, runners.found()))

    with pytest.raises(LeaseLostError, match="claimed by grace"):
        drive(slow.note(9))
    drive(slow.release())

    assert (quick.record.position, runners.found().position, runners.found().holder) == (5, 5, "grace")


def test_a_claim_that_is_released_is_free(runners):
    drive(drive(runners.ada.take(0, None)).release())

    assert runners.grace.is_free(runners.found())


def test_an_answer_that_was_lost_is_no_loss(runners):
    claim = drive(runners.ada.take(0, None))
    stale = claim.record
    drive(claim.note(3))
    claim.record = stale

    drive(claim.finish(7))

    assert (runners.found().position, runners.found().is_sent) == (7, True)


def test_refused_outputs_are_kept_once(runners):
    claim = drive(runners.ada.take(0, None))
    refused = Refused("g1-1", "Hit", "g1", "400 no", "Range")
    for _ in range(2):
        drive(claim.note(1, refused=[refused]))

    assert drive(runners.publications.refused(runners.publication)) == [refused]
