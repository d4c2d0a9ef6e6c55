"""The driver of a redrive is killed, and the redrive run again with its id: it gives what an undisturbed one gives."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.spark.test_redriving_letters import (
    CLOCK,
    again,
    app,
    needing,
    parcels,
    run,
    sent,
    waiting,
)
from tests.support.logs import message_id, row
from tests.support.outcomes import all_outcomes, published, statuses

ROOT = Path(__file__).parents[3]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "step",
    [
        "Round 0: handling messages",  # the letters are chosen, and none is handled
        "Round 0: committing outcomes",  # those that were handled are letters no more
        "Round 0: recording in the ledger",  # the outcomes are in place
    ],
)
def test_it_goes_on_with_its_letters_and_loses_and_doubles_none(place, step):
    # Given letters of two streams and of the table, of which some will be refused again, in two places
    place.app = app
    undisturbed = place.beside("undisturbed")
    rows = [
        *[sent(number, number, needs=needing(place)) for number in (1, 2)],
        sent(3, 3, "c", needing(place)),
        sent(4, 4, "c", "never"),
        row(5, "Lost", {}),
    ]
    for each in (place, undisturbed):
        run(each, "one", *rows, batch_id="one")
    Path(needing(place)).touch()

    # When the driver of a redrive is killed, a redelivery comes, and the redrive is run again by another driver
    arguments = [place.store, place.table, place.out, "redrive", str(CLOCK.microseconds), step]
    killed = subprocess.run(
        [sys.executable, "-m", "tests.support.killed_redrive", *arguments],
        cwd=ROOT,
        capture_output=True,
        start_new_session=True,
        check=False,
    )
    assert killed.returncode == -9, killed.stderr.decode()
    run(place, "between", rows[3], sent(6, 6, "d", "never"))
    resumed = again(place, batch_id="redrive")

    # Then nothing shows
    expected = again(undisturbed, batch_id="redrive")
    assert all_outcomes(resumed) == all_outcomes(expected)
    assert published(resumed) == published(expected)
    assert statuses(resumed)[message_id(4)] == ["handler_error"]
    assert parcels(place) == parcels(undisturbed) == [1, 2]
    assert parcels(place, "c") == [3]
    assert {found.letter.message_id: found.letter.tries for found in waiting(place)} == {
        message_id(4): 2,
        message_id(5): 2,
        message_id(6): 1,
    }
    assert not (place.folder / "out" / "_redrive").exists()
