"""Messages replayed in another process, with another hash seed, folder and time zone, give the same bytes."""

from pathlib import Path

from tests.unit.handlers.processes import run_python

PROGRAM = """
import os, sys, time
from eventstore import connect, drive
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome
from tests.unit.runtime.diary import NOISE, misbehave, ponder, write
from tests.unit.runtime.games import GAME, fire, start
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker, ends
from handlers import App
from samples.shooting_range.handlers import ShootingRange

store, days = sys.argv[1], int(sys.argv[2])
table = drive(connect(f"sqlite:///{store}").table("states"))
clock = ToldClock(NOW + days * DAY)
lines = [write(f"{word} {word[::-1]} {number}", headers={"b": "1", "a": word})
         for number, word in enumerate(("lime", "pear", "fig", "plum", "kiwi", "date"))]
shots = [start(1, 1), *(fire(number, number % 7) for number in range(30)), start(2, 5), fire(99, 5)]
deliveries = [*lines, ponder("p"), misbehave("capture noise", message_id="noise")]
outcomes = Worker(table, clock=clock, batch="batch-1").process(*deliveries)
outcomes += Worker(table, App(ShootingRange), clock=clock, batch="batch-1", business_id=str(GAME)).process(*shots)
print(os.getcwd(), time.tzname, hash("lime"), list(frozenset(lines[0].body.split())))
for outcome in outcomes:
    print(outcome.status, outcome.version, outcome.outputs)
"""


def test_a_replay_in_another_process_gives_the_same_bytes(tmp_path: Path):
    # Given messages that were handled by one process and stored in a file
    store = str(tmp_path / "store.db")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    surroundings, *first = run_python(PROGRAM, store, "0", hash_seed=1).splitlines()

    # When they are redelivered, days later, to processes that differ in all that a handler must not depend on
    others = [
        run_python(
            PROGRAM, store, "3", hash_seed=2, folder=folder, time_zone="Pacific/Auckland"
        ).splitlines(),
        run_python(
            PROGRAM, store, "9", hash_seed=3, folder=tmp_path, time_zone="America/St_Johns"
        ).splitlines(),
    ]

    # Then all outcomes are the same to the byte
    for other_surroundings, *other in others:
        assert other_surroundings != surroundings
        assert other == first
    assert len(first) == 6 + 2 + 33
    assert all(line.startswith("processed ") for line in first)
