"""The driver is killed at its worst moments; the batch is run again with its id, by another driver."""

import subprocess
import sys
from pathlib import Path

import pytest

from eventstore import connect, drive
from runtime.ledger.ledger import Ledger
from tests.integration.spark.conftest import NIGHT
from tests.support.clocks import FrozenClock
from tests.support.outcomes import all_outcomes, by_status, published

LATER = FrozenClock.at("2026-03-02T12:00:00")
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("step", "rounds"),
    [
        ("Round 0: committing outcomes", 0),  # all is appended, nothing of it is published
        # the outcomes are in place and not committed
        pytest.param("Round 0: recording in the ledger", 0, marks=pytest.mark.thorough),
        # between two rounds of the cascade
        pytest.param("Round 1: handling messages", 1, marks=pytest.mark.thorough),
    ],
)
def test_a_resumed_batch_gives_what_an_undisturbed_one_gives(place, night, step, rounds):
    # Given a batch whose driver was killed
    command = [sys.executable, "-m", "tests.support.killed_driver"]
    arguments = [place.store, place.table, place.out, night.log, "night", str(NIGHT.microseconds), step]
    killed = subprocess.run(
        [*command, *arguments], cwd=ROOT, capture_output=True, start_new_session=True, check=False
    )
    assert killed.returncode == -9, killed.stderr.decode()
    (record,) = batches(place)
    assert (record.batch_id, record.status, record.rounds) == ("night", "started", rounds)

    # When it is run again with its id, a day later
    resumed = place.run(night.log, batch_id="night", cascade=True, clock=LATER)

    # Then it gives the outcomes of a batch on another store that nobody killed
    undisturbed = night.frame
    if rounds:
        # what was appended after the kill has the time of then
        assert by_status(resumed) == by_status(undisturbed)
        assert [output[:3] for output in published(resumed)] == [
            output[:3] for output in published(undisturbed)
        ]
    else:
        assert all_outcomes(resumed.where("round = 0")) == all_outcomes(undisturbed.where("round = 0"))
    assert published(resumed) == published(undisturbed)


def batches(place):
    async def read():
        async with connect(place.store) as store:
            return await Ledger(await store.table(place.table), LATER).batches(9)

    return drive(read())
