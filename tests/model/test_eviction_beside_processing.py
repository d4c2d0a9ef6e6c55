"""Ids that are evicted when no copy can come any more are not missed; earlier than that, they are."""

from dataclasses import replace

import pytest

from runtime.messages.envelope import FIRST
from tests.model.explorer import explore
from tests.model.facts import Invariant, View
from tests.model.scenarios.entities import KEY, OTHER, entity_in
from tests.model.scenarios.eviction import OUTBOX, STORE, TOO_EARLY
from tests.model.world import Bounds


def _forgotten(view: View) -> str | None:
    """Say that the id of the message of long ago is not kept any more."""
    entity, rows = entity_in(view.snapshot), view.snapshot.tables.get(OTHER, {}).get(KEY, {})
    kept = entity is not None and "a" in entity.outbox
    return None if kept or any(key.startswith(FIRST) and key.endswith("a") for key in rows) else "it is gone"


@pytest.mark.parametrize("scenario", [OUTBOX, STORE], ids=lambda scenario: scenario.name)
def test_something_is_evicted(scenario):
    never = replace(scenario, invariants=[Invariant("NothingIsEvicted", _forgotten)])

    found = explore(never, Bounds(1)).violation

    assert found is not None
    assert len(found.schedule) > len(["delivered", "scan"]), "it was there at first"


@pytest.mark.parametrize("scenario", TOO_EARLY, ids=lambda scenario: scenario.name)
def test_a_copy_that_comes_after_its_id_was_evicted_is_processed_again(scenario):
    # As the documentation says: keep ids for as long as copies may come.
    found = explore(scenario, Bounds(1)).violation

    assert found is not None
    assert found.invariant == "AtMostOneStateChange"
