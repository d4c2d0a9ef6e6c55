"""A task fails after its append and before its outcomes are written; Spark runs it again."""

from tests.integration.spark.conftest import NIGHT
from tests.support.faults import DieOnceAfterAppend
from tests.support.outcomes import heads, without_tokens


def test_it_gives_what_a_task_that_ran_once_gives(any_place, night):
    place = any_place
    marker = place.folder / "died"
    # Given a batch in which a worker fails after its first append
    fault = DieOnceAfterAppend(str(marker), "ShootingRange-")
    disturbed = place.run(night.log, batch_id="night", cascade=True, clock=NIGHT, wrap=fault)
    assert marker.exists()

    # Then ids, statuses, versions and outputs are those of a batch that nothing disturbed, and so are the streams
    assert without_tokens(disturbed) == night.outcomes
    assert heads(place.store, place.table) == night.heads
