"""How much each algorithm keeps of a message once it is processed, as a table service counts it."""

import uuid

import pytest

from eventstore import Table
from eventstore.limits import prepare_row
from tests.unit.runtime.algorithms.game import SHOT, begun
from tests.unit.runtime.algorithms.world import ALGORITHMS
from tests.unit.runtime.tables import rows

MOST = {"state-based": 200, "outbox": 55, "deduplication-store": 480, "tokens": 1}
MESSAGES = 100


def size(table: Table) -> int:
    return sum(
        prepare_row(properties)[1] + 4 * (len(partition_key) + len(row_key))
        for (partition_key, row_key), properties in rows(table).items()
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_kept_of_a_message_is_about_what_the_documentation_says(algorithm):
    world = begun(algorithm)
    world.deliver(SHOT)
    world.settle()
    before = size(world.states) + size(world.evidence)

    for number in range(MESSAGES):
        world.deliver(SHOT._replace(message_id=str(uuid.UUID(int=number, version=4))))
        # The leader board is another entity, whose messages are not counted
        world.published.clear()

    # Tokens of messages that are under way are counted apart
    waiting = sum(
        prepare_row(properties)[1] + 4 * (len(key) + len(row_key))
        for (key, row_key), properties in rows(world.evidence).items()
        if row_key.endswith("-LeaderBoard")
    )
    kept = (size(world.states) + size(world.evidence) - waiting - before) / MESSAGES
    assert kept <= MOST[algorithm]
    assert waiting / MESSAGES <= 350
