"""In every algorithm, a copy under another name of its type is a copy, and another message is none."""

import pytest

from handlers import App, Context, Handler, Message, State, handles
from tests.unit.runtime.algorithms.world import ALGORITHMS, World
from tests.unit.runtime.diary import delivery


class Rang(Message, aliases=("Pealed",)):
    tower: str
    loud: bool = False


class Data(State):
    rings: int = 0


class Bell(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        return Data(rings=state.rings + 1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("names", [("Rang", "Pealed"), ("Pealed", "Rang")])
def test_a_copy_under_another_name_is_a_duplicate(algorithm, names):
    world = World(algorithm, App(Bell))

    statuses = [
        outcome.status for name in names for outcome in world.deliver(delivery("a", name, {"tower": "east"}))
    ]

    assert statuses == ["processed", "duplicate"]


@pytest.mark.parametrize("algorithm", ["state-based", "outbox", "deduplication-store"])
def test_another_message_with_the_id_is_none(algorithm):
    world = World(algorithm, App(Bell))
    world.deliver(delivery("a", "Rang", {"tower": "east"}))

    [other] = world.deliver(delivery("a", "Pealed", {"tower": "east", "loud": True}))

    assert (other.status, other.reason) == ("dead_letter", "id_reused")
