"""The scenarios of the article: a shooting range and its leader board, delivered more than once and out of order."""

from itertools import permutations

import pytest

from runtime import Status
from tests.unit.runtime.games import Game, fire, start


def test_a_a_shot_that_is_delivered_twice_hits_once():
    game = Game()

    game.deliver(start(1, 1))
    outcomes = game.deliver(fire(1, 1), fire(1, 1))

    assert [outcome.status for outcome in outcomes] == [Status.PROCESSED, Status.DUPLICATE]
    assert game.shots() == {"Hit": 1}


def test_b_a_shot_that_comes_again_in_the_next_round_hits_as_it_did():
    game = Game()

    game.deliver(start(1, 1), fire(1, 1), start(2, 2), fire(1, 1))

    first, second = game.published
    assert first == second
    assert first.body.encode() == second.body.encode()
    assert game.shots() == {"Hit": 1}


@pytest.mark.parametrize("order", list(permutations([fire(1, 1), fire(1, 1), start(2, 2)])))
def test_c_a_shot_and_its_copy_around_a_new_round_hit_or_miss_once(order):
    game = Game()

    game.deliver(start(1, 1))
    game.deliver(*order)

    assert sum(game.shots().values()) == 1
    assert len({output.body for output in game.published}) == 1


def test_d_the_same_hit_counts_once_on_the_leader_board():
    game = Game()
    game.deliver(start(1, 1), fire(1, 1))
    (hit,) = game.published

    outcomes = game.deliver(hit.envelope(), hit.envelope())

    assert [outcome.status for outcome in outcomes] == [Status.PROCESSED, Status.DUPLICATE]
    assert [outcome.version for outcome in outcomes] == [1, 1]


def test_the_target_moves_after_two_shots_and_moves_alike_for_copies():
    game = Game()
    game.deliver(start(1, 1), fire(1, 1), fire(2, 1))

    # Where the target is now, only the shots tell: one of a hundred hits.
    misses = game.deliver(*(fire(number, number - 100) for number in range(100, 102)))
    again = game.deliver(*(fire(number, number - 100) for number in range(100, 102)))

    assert [outcome.outputs for outcome in misses] == [outcome.outputs for outcome in again]
