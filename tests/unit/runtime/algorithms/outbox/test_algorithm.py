"""The algorithms with an outbox: scenarios, crashes, copies, lost answers and late writes."""

from collections import Counter
from itertools import permutations

import pytest

from handlers import App, Context, Handler, Message, handles
from tests.unit.runtime.accidents import At, CrashError, crash
from tests.unit.runtime.algorithms.game import GAME, SHOT, assert_one_hit, begun, calls, fire, shoot, start
from tests.unit.runtime.algorithms.world import ALGORITHMS, World
from tests.unit.runtime.bells import Rings, rang
from tests.unit.runtime.worker import ends

every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


# The scenarios of the article, the same for every algorithm: what is delivered more than once has its effect once.


def shots(world: World) -> Counter[str]:
    """Count the different outputs by type."""
    return Counter({output.message_id: output.type for output in world.published}.values())


@every_algorithm
@pytest.mark.parametrize("order", sorted(set(permutations([fire(1, 1), fire(1, 1), start(2, 2)]))))
def test_a_shot_and_its_copy_in_this_round_or_the_next_hit_or_miss_once(algorithm, order):
    world = World(algorithm)

    world.deliver(start(1, 1))
    outcomes = world.deliver(*order)

    assert sorted(ends(outcomes)) == ["duplicate", "processed", "processed"]
    assert sum(shots(world).values()) == 1
    assert shots(world) == {"Hit": 1} or order[0] == start(2, 2)
    assert len({(output.message_id, output.body.encode()) for output in world.published}) == 1


# A copy that comes when its message is finished returns early, and cleans up what a crash has left.


def test_an_early_return_leaves_the_entry_of_another_token_alone():
    # Given an entry that waits to be sent
    world = begun("tokens")
    with pytest.raises(CrashError):
        shoot(world, before=At(calls("tokens").index("publish") + 1, crash))

    # When a copy comes whose token never was
    stranger = SHOT._replace(headers={"token": "nowhere/other"})
    outcomes = world.deliver(stranger)

    # Then that does not prove that the outputs are published
    assert ends(outcomes) == ["duplicate"]
    entity = world.entity("ShootingRange", str(GAME))
    assert entity is not None
    assert entity.pending == 1
    world.deliver(SHOT)
    world.consume()
    assert_one_hit(world)


# In every algorithm, a copy under another name of its type is a copy, and another message is none.


class Chimed(Message, aliases=("Pealed",)):
    tower: str
    loud: bool = False


class Chimes(Handler[Rings]):
    @handles(by="tower")
    def chimed(self, state: Rings, message: Chimed, context: Context) -> Rings:
        return Rings(rings=state.rings + 1)


@every_algorithm
@pytest.mark.parametrize("names", [("Chimed", "Pealed"), ("Pealed", "Chimed")])
def test_a_copy_under_another_name_is_a_duplicate_and_another_message_is_none(algorithm, names):
    world = World(algorithm, App(Chimes))
    copies = [rang("a", message_type=name)[0] for name in names]

    outcomes = world.deliver(*copies, *rang("a", message_type=names[1], body={"tower": "east", "loud": True}))

    # With tokens, one that comes after the first was processed has no token left: it is a duplicate of it.
    other = "duplicate" if algorithm == "tokens" else "id_reused"
    assert ends(outcomes) == ["processed", "duplicate", other]


# What is told to others, or relied on by the next step, survives a power cut by then: each store is told in time.


@every_algorithm
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


@every_algorithm
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
