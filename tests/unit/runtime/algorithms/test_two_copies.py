"""Two workers with copies of one message, interleaved at every call: it has its effect once."""

from contextlib import suppress

import pytest

from eventstore import drive
from tests.unit.runtime import diary
from tests.unit.runtime.algorithms.game import SHOT, assert_one_hit, begun, calls, finish, shoot
from tests.unit.runtime.algorithms.world import ALGORITHMS, At, CrashError, World, crash
from tests.unit.runtime.diary import write

pytestmark = pytest.mark.parametrize("algorithm", ALGORITHMS)
MORE = 8
"""How many calls more a worker makes at most once it was disturbed."""


def test_a_copy_that_is_processed_between_any_two_calls_of_another(algorithm):
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)
        shoot(world, before=At(number, lambda world=world: world.process(SHOT)))
        world.settle()
        assert_one_hit(world)


def test_a_copy_and_all_that_follows_from_it_between_any_two_calls_of_another(algorithm):
    # The slow worker wakes up when the other has finished the message, and its outputs are processed too.
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)

        async def overtake(world: World = world) -> None:
            await world.process(SHOT)
            await world.settling()

        shoot(world, before=At(number, overtake))
        world.settle()
        assert_one_hit(world)


def test_a_copy_that_overtakes_a_worker_that_crashes_later(algorithm):
    count = len(calls(algorithm))
    for number in range(1, count + 1):
        for later in range(number, count + MORE):
            world = begun(algorithm)
            overtake = At(number, lambda world=world: world.process(SHOT))
            with suppress(CrashError):
                shoot(world, before=overtake, after=At(later, crash))
            finish(world)
            assert_one_hit(world)


def test_a_copy_that_crashes_in_the_middle_of_another(algorithm):
    count = len(calls(algorithm))
    for number in range(1, count + 1):
        for later in range(1, count + 1):
            world = begun(algorithm)

            async def die(world: World = world, later: int = later) -> None:
                with suppress(CrashError):  # a copy that finds all done makes fewer calls
                    await world.process(SHOT, after=At(later, crash))

            shoot(world, before=At(number, die))
            finish(world)
            assert_one_hit(world)


def test_two_messages_of_one_object_are_both_processed_whoever_comes_first(algorithm):
    alone = World(algorithm, diary.app)
    alone.deliver(write("a"))
    for number in range(1, len(alone.calls) + 1):
        world = World(algorithm, diary.app)
        other = At(number, lambda world=world: world.process(write("b")))
        drive(world.process(write("a"), before=other))

        lines = world.state("Diary", diary.DIARY)["lines"]
        assert sorted(lines) == ["a", "b"]  # type: ignore[call-overload]
        pages = {tuple(diary.Wrote.model_validate_json(output.body).on_page) for output in world.published}
        assert pages == {tuple(lines[:1]), tuple(lines)}  # type: ignore[index, arg-type]
        assert world.garbage() == []
