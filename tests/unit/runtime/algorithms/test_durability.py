"""What is told to others, or relied on by the next step, survives a power cut by then: each store is told in time."""

import pytest

from tests.unit.runtime.algorithms.game import SHOT, begun, calls
from tests.unit.runtime.algorithms.world import ALGORITHMS
from tests.unit.runtime.games import start


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_an_output_speaks_of_is_durable_before_it_is_published(algorithm):
    made = calls(algorithm)

    before = made[: made.index("publish")]

    last = max(number for number, call in enumerate(before) if call == "states transact")
    assert "states barrier" in before[last:]


@pytest.mark.parametrize("algorithm", ["deduplication-store", "tokens"])
def test_what_a_store_says_is_durable_before_the_states_are_changed_on_the_strength_of_it(algorithm):
    made = calls(algorithm)

    changes = [number for number, call in enumerate(made) if call == "other transact"]

    assert changes
    assert all(made[number + 1] == "other barrier" for number in changes)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_message_without_outputs_is_durable_before_it_is_acknowledged(algorithm):
    world = begun(algorithm)

    world.deliver(start(2, 2))

    first = world.calls.index("states transact")
    assert "states barrier" in world.calls[first:]


@pytest.mark.parametrize("algorithm", ["state-based", "outbox"])
def test_a_duplicate_is_durable_before_it_is_acknowledged(algorithm):
    # Whoever stored it may not have come so far. With the others, their store is written after that.
    world = begun(algorithm)
    world.deliver(SHOT)

    world.deliver(SHOT)

    assert "states barrier" in world.calls
