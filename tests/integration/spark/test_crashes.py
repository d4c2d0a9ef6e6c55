"""Drivers, tasks and workers that die: the batch gives what an undisturbed one gives."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from handlers import App, Context, Handler, Message, State, handles
from runtime.ledger.ledger import BatchStatus
from tests.integration.spark.conftest import NIGHT
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
from tests.support.clocks import FrozenClock
from tests.support.faults import (
    DieOnceAfter,
    appends_to_a_range,
    creates_tokens,
    finishes_an_entity,
    finishes_elsewhere,
    stores_an_entity,
)
from tests.support.killed_driver import AMID_SECOND_PASS, LETTERS
from tests.support.logs import message_id, row, write_lines
from tests.support.outcomes import (
    Left,
    all_outcomes,
    by_status,
    entities,
    heads,
    left,
    published,
    statuses,
    without_tokens,
)

LATER = FrozenClock.at("2026-03-02T12:00:00")
ROOT = Path(__file__).parents[3]


def kill_driver(place, log, batch_id, clock, step, algorithm):
    """Run a driver in a process of its own, which kills itself at a step."""
    driver = [sys.executable, "-m", "tests.support.killed_driver", place.store, place.table, place.out, log]
    command = [*driver, batch_id, str(clock.microseconds), step, algorithm]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, start_new_session=True, check=False)
    assert killed.returncode == -9, killed.stderr.decode()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("algorithm", "step"),
    [
        ("state-based", "Round 0: committing outcomes"),  # all is appended, nothing of it is published
        ("state-based", "Round 0: recording in the ledger"),  # the outcomes are in place and not committed
        ("state-based", "Round 1: handling messages"),  # between two rounds of the cascade
        ("outbox", "Round 0: finishing messages"),  # between the passes
        ("tokens", "Round 0: committing outcomes"),
        ("deduplication-store", AMID_SECOND_PASS),
    ],
)
def test_a_batch_whose_driver_was_killed_gives_what_an_undisturbed_one_gives(place, night, algorithm, step):
    # Given a batch whose driver was killed
    log = place.issue(night.log).out if algorithm == "tokens" else night.log
    kill_driver(place, log, "night", NIGHT, step, algorithm)
    assert place.batches()[0].status is BatchStatus.STARTED

    # When it is run again with its id, a day later
    resumed = place.run(log, batch_id="night", algorithm=algorithm, cascade=True, clock=LATER, partitions=2)

    # Then it gives the outcomes of a batch on another store that nobody killed
    if algorithm == "state-based":
        assert by_status(resumed) == by_status(night.frame)
        assert published(resumed) == published(night.frame)
        if step.startswith("Round 0"):  # what was appended after the kill has the time of then
            assert all_outcomes(resumed.where("round = 0")) == all_outcomes(night.frame.where("round = 0"))
        return
    assert without_tokens(resumed) == night.outcomes
    assert entities(place.store, place.table) == night.states
    assert left(place.store, place.table) == Left({"ShootingRange": 60, "LeaderBoard": 45}, 0, 0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "step",
    [
        "Round 0: handling messages",  # the letters are chosen, and none is handled
        "Round 0: committing outcomes",  # those that were handled are letters no more
        "Round 0: recording in the ledger",  # the outcomes are in place
    ],
)
def test_a_redrive_goes_on_with_its_letters_and_loses_and_doubles_none(place, step):
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
    kill_driver(place, LETTERS, "redrive", CLOCK, step, "state-based")
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


@pytest.mark.parametrize(
    ("algorithm", "sign"),
    [
        ("state-based", appends_to_a_range),
        pytest.param("deduplication-store", stores_an_entity, marks=pytest.mark.thorough),
        pytest.param("tokens", creates_tokens, marks=pytest.mark.thorough),
        pytest.param("outbox", finishes_an_entity, marks=pytest.mark.thorough),
        pytest.param("tokens", finishes_elsewhere, marks=pytest.mark.thorough),
    ],
)
def test_a_batch_in_which_a_worker_died_gives_what_an_undisturbed_one_gives(place, night, algorithm, sign):
    log = place.issue(night.log).out if algorithm == "tokens" else night.log
    marker, options = place.folder / "died", {"cascade": True, "clock": NIGHT, "partitions": 2}
    fault = DieOnceAfter(str(marker), sign)

    outcomes = place.run(log, batch_id="night", algorithm=algorithm, wrap=fault, **options)

    # Then ids, statuses, versions and outputs are those of a batch that nothing disturbed, and so are the streams
    assert marker.exists()
    assert without_tokens(outcomes) == night.outcomes
    if algorithm == "state-based":
        assert heads(place.store, place.table) == night.heads
        return
    assert entities(place.store, place.table) == night.states
    assert left(place.store, place.table)[1:] == (0, 0)


DEEDS: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: ctypes.string_at(0),
    "leave": lambda: os._exit(0),
    "keep the interpreter": lambda: sum(range(10**13)),
}


class Do(Message):
    room: str
    deed: str


class Count(State):
    count: int = 0


class Doer(Handler[Count]):
    @handles(by="room")
    def do(self, state: Count, message: Do, context: Context) -> Count:
        DEEDS[message.deed]()
        return Count(count=state.count + 1)


@pytest.mark.thorough
@pytest.mark.parametrize("deed", ["kill", "segfault", "leave", "keep the interpreter"])
def test_the_batch_goes_on_without_the_message(place, deed):
    reason = "handler_timeout" if deed == "keep the interpreter" else "handler_crashed"
    place.app = App(Doer)
    deeds = ["nothing", "nothing", deed, "nothing"]
    rows = [row(number, "Do", {"room": "hall", "deed": each}) for number, each in enumerate(deeds)]
    log = write_lines(place.folder / "log.jsonl", rows)

    outcomes = place.run(log, batch_id="night", handler_timeout=timedelta(seconds=3), partitions=1)

    found = statuses(outcomes)
    assert [found[message_id(number)] for number in range(4)] == [
        *(["processed"], ["processed"], [reason], ["processed"])
    ]
    # ... and so it stays: the next batch finds the refusal recorded
    again = place.run(log, handler_timeout=timedelta(seconds=3), partitions=1)
    assert {row.reason for row in again.collect()} == {None, reason}
