"""A worker may die between any two calls, also in the middle of publishing: the next copy goes on from there."""

import pytest

from tests.unit.runtime.algorithms.game import assert_one_hit, begun, calls, finish, shoot
from tests.unit.runtime.algorithms.world import ALGORITHMS, At, CrashError, crash
from tests.unit.runtime.games import GAME

pytestmark = pytest.mark.parametrize("algorithm", ALGORITHMS)


def test_a_crash_before_any_call_loses_and_repeats_nothing(algorithm):
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)
        with pytest.raises(CrashError):
            shoot(world, before=At(number, crash))
        finish(world)
        assert_one_hit(world)


def test_a_crash_after_any_call_loses_and_repeats_nothing(algorithm):
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)
        with pytest.raises(CrashError):
            shoot(world, after=At(number, crash))
        finish(world)
        assert_one_hit(world)


def test_two_crashes_at_any_two_calls_lose_and_repeat_nothing(algorithm):
    # The second attempt may take more calls than an undisturbed one: it stops mattering when it ends without a crash.
    for first in range(1, len(calls(algorithm)) + 1):
        second, ended = 0, False
        while not ended:
            second += 1
            world = begun(algorithm)
            with pytest.raises(CrashError):
                shoot(world, after=At(first, crash))
            try:
                shoot(world, after=At(second, crash))
                ended = True
            except CrashError:
                pass
            finish(world)
            assert_one_hit(world)


def test_what_was_published_is_consumed_before_the_crashed_worker_comes_back(algorithm):
    # The output is published, its consumer is done with it, and only then its parent is redelivered.
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)
        with pytest.raises(CrashError):
            shoot(world, after=At(number, crash))
        world.consume()
        finish(world)
        assert_one_hit(world)


def test_nothing_is_published_before_the_state_is_stored(algorithm):
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)
        before = world.state("ShootingRange", str(GAME))
        with pytest.raises(CrashError):
            shoot(world, before=At(number, crash))
        changed = world.state("ShootingRange", str(GAME)) != before
        assert changed or not world.published
