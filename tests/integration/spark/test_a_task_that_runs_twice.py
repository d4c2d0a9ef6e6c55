"""A task fails after its append and before its outcomes are out; Spark runs it again."""

from pathlib import Path

from tests.support.clocks import FrozenClock
from tests.support.faults import DieOnceAfterAppend
from tests.support.logs import generated
from tests.support.outcomes import all_outcomes, heads

CLOCK = FrozenClock.at("2026-03-01T12:00:00")


def test_it_gives_what_a_task_that_ran_once_gives(any_place):
    place = any_place
    log = generated(place.folder / "log.jsonl", games=10, messages=200, duplicates=0.2, shuffle=True)
    marker = place.folder / "died"
    # Given a batch in which a worker fails after its first append
    fault = DieOnceAfterAppend(str(marker), "ShootingRange-")
    disturbed = place.run(log, batch_id="night", cascade=True, clock=CLOCK, wrap=fault)
    assert marker.exists()
    streams = heads(place.store, place.table)

    # When the same batch runs undisturbed on another store
    place.folder = place.folder / "other"
    place.store, place.table = f"sqlite:///{place.folder}/store.db", "other"
    undisturbed = place.run(log, batch_id="night", cascade=True, clock=CLOCK)

    # Then ids, statuses, versions and outputs are equal, and so are the streams
    assert all_outcomes(disturbed) == all_outcomes(undisturbed)
    assert heads(place.store, place.table) == streams
    assert Path(place.out).is_dir()
