"""With an outbox, a driver dies before its outcomes are committed, before its messages are finished, or amid that."""

import subprocess
import sys
from pathlib import Path

import pytest

from runtime import BatchFailedError
from tests.integration.spark.conftest import NIGHT
from tests.support.clocks import FrozenClock
from tests.support.killed_driver import AMID_SECOND_PASS
from tests.support.outcomes import Left, entities, left, without_tokens

LATER = FrozenClock.at("2026-03-02T12:00:00")
ROOT = Path(__file__).parents[3]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("algorithm", "step"),
    [("tokens", "Round 0: committing outcomes"), ("deduplication-store", AMID_SECOND_PASS)],
)
def test_a_batch_whose_driver_was_killed_gives_what_an_undisturbed_one_gives(place, night, algorithm, step):
    log = place.issue(night.log).out if algorithm == "tokens" else night.log
    arguments = [place.store, place.table, place.out, log, "night", str(NIGHT.microseconds), step, algorithm]
    killed = subprocess.run(
        [sys.executable, "-m", "tests.support.killed_driver", *arguments],
        cwd=ROOT, capture_output=True, start_new_session=True, check=False,
    )  # fmt: skip
    assert killed.returncode == -9, killed.stderr.decode()
    assert left(place.store, place.table).unfinished > 0

    resumed = place.run(log, batch_id="night", algorithm=algorithm, cascade=True, clock=LATER, partitions=2)

    assert_nothing_shows(place, night, resumed)


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["outbox"])
def test_a_batch_that_stopped_between_the_passes_finishes_its_messages_when_it_goes_on(
    place, night, algorithm
):
    def stop(step: str) -> None:
        if step == "Round 0: finishing messages":
            raise BatchFailedError("It stops here.")

    log = place.issue(night.log).out if algorithm == "tokens" else night.log
    options = {"algorithm": algorithm, "batch_id": "night", "cascade": True, "partitions": 2}
    with pytest.raises(BatchFailedError):
        place.run(log, **options, clock=NIGHT, step=stop)
    assert left(place.store, place.table).unfinished == 60

    resumed = place.run(log, **options, clock=LATER)

    assert_nothing_shows(place, night, resumed)


def assert_nothing_shows(place, night, resumed) -> None:
    assert without_tokens(resumed) == night.outcomes
    assert entities(place.store, place.table) == night.states
    assert left(place.store, place.table) == Left({"ShootingRange": 60, "LeaderBoard": 45}, 0, 0)
