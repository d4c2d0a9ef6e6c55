"""A copy that comes when its message is finished returns early, and cleans up what a crash has left."""

import pytest

from tests.unit.runtime.algorithms.game import SHOT, assert_one_hit, begun, calls, shoot
from tests.unit.runtime.algorithms.world import At, CrashError, Pause, crash, resume
from tests.unit.runtime.games import GAME
from tests.unit.runtime.worker import ends

LAST_STEP = "states transact"
"""The write that removes the entry of a message from its entity."""


def crashed_before_the_last_step(algorithm):
    world = begun(algorithm)
    (*_, last) = [number for number, call in enumerate(calls(algorithm), 1) if call == LAST_STEP]
    with pytest.raises(CrashError):
        shoot(world, before=At(last, crash))
    assert world.garbage()
    world.consume()
    return world


@pytest.mark.parametrize("algorithm", ["deduplication-store", "tokens"])
def test_an_early_return_removes_a_leftover_entry(algorithm):
    world = crashed_before_the_last_step(algorithm)
    published = len(world.published)

    outcomes = world.deliver(SHOT)

    assert ends(outcomes) == ["duplicate"]
    assert len(world.published) == published
    assert_one_hit(world)


@pytest.mark.parametrize("algorithm", ["deduplication-store", "tokens"])
def test_an_early_return_with_nothing_to_clean_up_costs_two_requests(algorithm):
    world = crashed_before_the_last_step(algorithm)
    world.deliver(SHOT)

    world.deliver(SHOT)

    assert world.calls == ["states get", "other get"]


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


def test_an_early_return_does_not_take_the_tokens_of_a_winner_for_garbage():
    # Given a worker that has registered its attempt, and a copy that reads the entity then
    world = begun("tokens")
    winner = world.process(SHOT, before=At(calls("tokens").index("other transact") + 1, Pause))
    copy = world.process(SHOT, after=At(1, Pause))
    assert resume(winner)
    assert resume(copy)

    # When the first finishes the message, and the copy finds no token
    assert not resume(winner)
    assert not resume(copy)

    # Then the tokens of what was sent are there, and it is processed
    world.consume()
    assert_one_hit(world)
