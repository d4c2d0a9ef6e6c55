"""Of two runners one at a time sends a slice, and whoever was too slow finds that out."""

from __future__ import annotations

from datetime import timedelta

import pytest

from eventstore import connect, drive
from runtime.errors import LeaseLostError
from runtime.publishing.publisher import Record, Result
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

    def now(self):
        return self.time() + self._later

    def wait(self, microseconds):
        self._later += microseconds

    def take(self, name, found=None):
        return drive(self.publications.claim(self.publication, 0, found, name, MINUTE))

    def is_free(self):
        return self.found().lease.expires_at <= self.now()

    def found(self):
        return drive(self.publications.slices(self.publication)).get(0)


@pytest.fixture
def runners():
    return Runners()


def test_the_second_one_waits(runners):
    runners.take("ada")

    assert runners.take("grace") is None
    assert not runners.is_free()


def test_a_claim_that_is_renewed_is_kept(runners):
    claim = runners.take("ada")
    for _ in range(3):
        runners.wait(HALF)
        drive(claim.renew())

    assert not runners.is_free()


def test_whoever_was_too_slow_finds_that_out_and_changes_nothing(runners):
    slow = runners.take("ada")
    drive(slow.note(5))
    runners.wait(3 * HALF)
    assert runners.is_free()
    quick = runners.take("grace", runners.found())

    with pytest.raises(LeaseLostError, match="taken over by grace"):
        drive(slow.note(9))
    drive(slow.release())

    assert (quick.position, runners.found().position, runners.found().lease.holder) == (5, 5, "grace")


def test_a_claim_that_is_released_is_free(runners):
    drive(runners.take("ada").release())

    assert runners.is_free()


def test_an_answer_that_was_lost_is_no_loss(runners):
    claim = runners.take("ada")
    stale = claim.lease
    drive(claim.note(3))
    claim.lease = stale

    drive(claim.finish(7))

    assert (runners.found().position, runners.found().is_sent) == (7, True)


def test_records_are_kept_once_and_may_be_more_than_a_transaction_holds(runners):
    claim = runners.take("ada")
    records = [
        Record(f"g1-{number:03}", "Hit", "g1", "Game", Result.NOT_SENT, "400 no") for number in range(250)
    ]
    for _ in range(2):
        drive(claim.note(1, records))

    assert drive(runners.publications.records(runners.publication)) == records
