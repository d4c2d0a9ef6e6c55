"""The scenarios of the article, the same for every algorithm: what is delivered more than once has its effect once."""

from collections import Counter
from itertools import permutations

import pytest

from runtime import Status
from tests.unit.runtime.algorithms.game import new_world
from tests.unit.runtime.algorithms.world import ALGORITHMS, World
from tests.unit.runtime.games import GAME, fire, start

pytestmark = pytest.mark.parametrize("algorithm", ALGORITHMS)


def shots(world: World) -> Counter[str]:
    """Count the different outputs by type."""
    return Counter({output.message_id: output.type for output in world.published}.values())


def test_a_a_shot_that_is_delivered_twice_hits_once(algorithm):
    world = new_world(algorithm)

    world.deliver(start(1, 1))
    outcomes = world.deliver(fire(1, 1), fire(1, 1))

    assert [outcome.status for outcome in outcomes] == [Status.PROCESSED, Status.DUPLICATE]
    assert shots(world) == {"Hit": 1}
    assert world.state("ShootingRange", str(GAME))["number_of_attempts"] == 1


def test_b_a_shot_that_comes_again_in_the_next_round_hits_as_it_did(algorithm):
    world = new_world(algorithm)

    world.deliver(start(1, 1), fire(1, 1), start(2, 2), fire(1, 1))

    assert shots(world) == {"Hit": 1}
    assert len({(output.message_id, output.body.encode()) for output in world.published}) == 1


@pytest.mark.parametrize("order", list(permutations([fire(1, 1), fire(1, 1), start(2, 2)])))
def test_c_a_shot_and_its_copy_around_a_new_round_hit_or_miss_once(algorithm, order):
    world = new_world(algorithm)

    world.deliver(start(1, 1))
    world.deliver(*order)

    assert sum(shots(world).values()) == 1
    assert len({output.body for output in world.published}) == 1


def test_d_the_same_hit_counts_once_on_the_leader_board(algorithm):
    world = new_world(algorithm)
    world.deliver(start(1, 1), fire(1, 1))
    (hit,) = world.published

    outcomes = world.deliver(hit.envelope(), hit.envelope())

    assert [outcome.status for outcome in outcomes] == [Status.PROCESSED, Status.DUPLICATE]
    board = world.state("LeaderBoard", str(GAME))
    assert (board["number_of_hits"], board["number_of_misses"]) == (1, 0)


def test_nothing_is_left_to_do_when_all_is_processed(algorithm):
    world = new_world(algorithm)

    world.deliver(start(1, 1), fire(1, 1), fire(2, 2))
    world.consume()

    assert world.garbage() == []


def test_every_algorithm_publishes_the_same(algorithm):
    first, world = new_world("state-based"), new_world(algorithm)

    for each in (first, world):
        each.deliver(start(1, 1), fire(1, 1), fire(2, 2), start(2, 2), fire(3, 2))

    assert [output[:5] for output in world.published] == [output[:5] for output in first.published]
    assert world.state("ShootingRange", str(GAME)) == first.state("ShootingRange", str(GAME))
