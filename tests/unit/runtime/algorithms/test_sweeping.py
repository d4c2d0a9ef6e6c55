"""The sweeper finishes messages whose worker died, when they are not redelivered."""

from contextlib import suppress
from datetime import timedelta

import pytest

from eventstore import drive
from tests.unit.runtime import diary
from tests.unit.runtime.algorithms.game import (
    assert_one_hit,
    begun,
    calls,
    new_world,
    shoot,
)
from tests.unit.runtime.algorithms.world import WITH_OUTBOX, At, CrashError, World, crash, lose_answer
from tests.unit.runtime.diary import write
from tests.unit.runtime.games import GAME
from tests.unit.runtime.worker import SECOND

pytestmark = pytest.mark.parametrize("algorithm", WITH_OUTBOX)


def sweep(world: World, **disturbances) -> int:
    return drive(world.worker(**disturbances).sweep())


def after_each_crash(algorithm):
    """Give a world for each call after which a worker can die with the state changed."""
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)
        with pytest.raises(CrashError):
            shoot(world, after=At(number, crash))
        if world.state("ShootingRange", str(GAME))["number_of_attempts"] == 1:
            yield world


def test_a_sweep_finishes_what_a_crash_left(algorithm):
    for world in after_each_crash(algorithm):
        sweep(world)
        world.consume()
        assert_one_hit(world)


def test_a_sweep_finishes_what_another_sweep_left(algorithm):
    for world in after_each_crash(algorithm):
        for number in range(1, 12):
            with suppress(CrashError):
                sweep(world, after=At(number, crash))
        sweep(world)
        world.consume()
        assert_one_hit(world)


def test_a_sweep_makes_up_for_lost_answers(algorithm):
    for world in after_each_crash(algorithm):
        sweep(world, after=At(2, lose_answer), before=At(5, lose_answer))
        world.consume()
        assert_one_hit(world)


def test_a_sweep_between_any_two_calls_of_a_worker_changes_nothing(algorithm):
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)
        shoot(world, before=At(number, world.worker().sweep))
        world.consume()
        assert_one_hit(world)


def test_a_sweep_tells_how_many_messages_it_finished(algorithm):
    world = new_world(algorithm, diary.app)
    for number, name in enumerate(["d-1", "d-2", "d-2"]):
        with pytest.raises(CrashError):
            drive(world.process(write("line", str(number), name), before=die_at_publish))

    assert sweep(world) == 3
    assert sweep(world) == 0
    assert len(world.published) == 3


def test_a_sweep_of_nothing_costs_one_scan(algorithm):
    world = begun(algorithm)
    world.calls.clear()

    assert sweep(world) == 0
    assert world.calls == ["states scan"] * 2  # for each of the two handlers


def test_a_sweep_leaves_alone_what_was_begun_a_moment_ago(algorithm):
    world = begun(algorithm)
    with pytest.raises(CrashError):
        shoot(world, before=die_at_publish)
    world.clock.now += 30 * SECOND

    early = drive(world.worker().sweep(timedelta(minutes=1)))
    world.clock.now += 30 * SECOND
    late = drive(world.worker().sweep(timedelta(minutes=1)))

    assert (early, late) == (0, 1)


def die_at_publish(call: str) -> None:
    if call == "publish":
        crash()
