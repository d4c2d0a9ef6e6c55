"""The rules of the shooting range and its leader board, written with the kit for tests."""

from uuid import UUID

import pytest

from handlers.testing import HandlerSpec, check_determinism
from samples.shooting_range import app
from samples.shooting_range.handlers import (
    FireAt,
    Hit,
    LeaderBoard,
    LeaderBoardData,
    Missed,
    ShootingRange,
    ShootingRangeData,
    StartNewRound,
)

GAME = UUID("7d444840-9dc0-11d1-b245-5ffdce74fad2")
SHOT = UUID("00000000-0000-8000-8000-000000000001")

range_with_target_at_7 = HandlerSpec(ShootingRange).given(StartNewRound(game_id=GAME, position=7))


def fire_at(position: int) -> FireAt:
    return FireAt(game_id=GAME, position=position)


def test_a_new_round_puts_the_target_where_the_message_says_and_forgets_attempts():
    for spec in (HandlerSpec(ShootingRange), range_with_target_at_7.given(fire_at(1))):
        spec.when(StartNewRound(game_id=GAME, position=7)).then(
            publishes=[], state=ShootingRangeData(target_position=7, number_of_attempts=0)
        )


@pytest.mark.parametrize(("position", "told"), [(7, Hit), (8, Missed)])
def test_a_shot_at_the_target_hits_and_one_elsewhere_misses(position, told):
    range_with_target_at_7.with_guids(SHOT).when(fire_at(position)).then(
        publishes=[told(id=SHOT, game_id=GAME)],
        state=ShootingRangeData(target_position=7, number_of_attempts=1),
    )


def test_after_two_shots_the_target_moves():
    range_with_target_at_7.given(fire_at(1)).drawing(42).when(fire_at(7)).then(
        publishes=[Hit], state=ShootingRangeData(target_position=42, number_of_attempts=0)
    )


def test_a_shot_that_is_delivered_again_after_the_target_moved_gives_the_same_hit():
    # The article's counterexample to storing only the newest state: the shot would miss the target that moved.
    range_with_target_at_7.when(fire_at(7)).then(publishes=[Hit]).redelivered(
        fire_at(1), fire_at(7), fire_at(7)
    )


def test_the_leader_board_counts_hits_and_misses():
    board = HandlerSpec(LeaderBoard).given(state=LeaderBoardData(number_of_hits=2, number_of_misses=3))

    board.when(Hit(id=SHOT, game_id=GAME)).then(
        publishes=[], state=LeaderBoardData(number_of_hits=3, number_of_misses=3)
    )
    board.when(Missed(id=SHOT, game_id=GAME)).then(
        publishes=[], state=LeaderBoardData(number_of_hits=2, number_of_misses=4)
    )


def test_the_handlers_are_deterministic():
    check_determinism(app)
