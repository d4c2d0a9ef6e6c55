"""A task dies after a write of the first pass, or of the second one; Spark runs it again, and nothing shows."""

import pytest

from tests.integration.spark.conftest import NIGHT
from tests.support.faults import (
    DieOnceAfter,
    creates_tokens,
    finishes_an_entity,
    finishes_elsewhere,
    stores_an_entity,
)
from tests.support.outcomes import entities, left, without_tokens


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("algorithm", "sign"),
    [
        ("deduplication-store", stores_an_entity),
        ("tokens", creates_tokens),
        ("outbox", finishes_an_entity),
        ("tokens", finishes_elsewhere),
    ],
)
def test_it_gives_what_tasks_give_that_ran_once(place, night, algorithm, sign):
    log = place.issue(night.log).out if algorithm == "tokens" else night.log
    marker = place.folder / "died"

    outcomes = place.run(
        log, batch_id="night", algorithm=algorithm, cascade=True, clock=NIGHT, partitions=2,
        wrap=DieOnceAfter(str(marker), sign),
    )  # fmt: skip

    assert marker.exists()
    assert without_tokens(outcomes) == night.outcomes
    assert entities(place.store, place.table) == night.states
    assert left(place.store, place.table)[1:] == (0, 0)
