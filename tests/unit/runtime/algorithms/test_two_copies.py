"""Two workers with copies of one message, interleaved at every call: it has its effect once."""

from contextlib import suppress
from functools import partial
from itertools import product

import pytest

from eventstore import drive
from tests.unit.runtime import diary
from tests.unit.runtime.algorithms.game import (
    SHOT,
    assert_one_hit,
    begun,
    calls,
    finish,
    new_world,
    shoot,
)
from tests.unit.runtime.algorithms.world import ALGORITHMS, At, CrashError, Pause, World, crash, resume
from tests.unit.runtime.diary import write

pytestmark = [pytest.mark.thorough, pytest.mark.parametrize("algorithm", ALGORITHMS)]
MORE = 8
"""How many calls more a worker makes at most once it was disturbed."""


def test_a_copy_that_is_processed_between_any_two_calls_of_another(algorithm):
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)
        shoot(world, before=At(number, partial(world.process, SHOT)))
        world.consume()
        assert_one_hit(world)


def test_a_copy_and_all_that_follows_from_it_between_any_two_calls_of_another(algorithm):
    # The slow worker wakes up when the other has finished the message, and its outputs are processed too.
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)

        async def overtake(world: World = world) -> None:
            await world.process(SHOT)
            await world.consuming()

        shoot(world, before=At(number, overtake))
        world.consume()
        assert_one_hit(world)


def test_a_copy_that_overtakes_a_worker_that_crashes_later(algorithm):
    count = len(calls(algorithm))
    for number in range(1, count + 1):
        for later in range(number, count + MORE):
            world = begun(algorithm)
            overtake = At(number, partial(world.process, SHOT))
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


def test_copies_whose_workers_take_turns(algorithm):
    # One runs up to a call, the other up to another, the first to the end, the second to the end.
    count = len(calls(algorithm)) + 1
    for first, second in product(range(1, count), range(1, count)):
        world = begun(algorithm)
        one = world.process(SHOT, before=At(first, Pause))
        other = world.process(SHOT, before=At(second, Pause))
        assert resume(one)
        waits = resume(other)
        world.consume()
        assert not resume(one)
        world.consume()
        assert not waits or not resume(other)
        world.consume()
        assert_one_hit(world)


@pytest.mark.thorough
def test_copies_whose_workers_take_turns_after_a_crash(algorithm):
    # The first attempt leaves something unfinished behind, so that both workers finish what another has begun.
    count = len(calls(algorithm)) + 2
    for crashed, first, second in product(range(3, count), range(1, count), range(1, count)):
        world = begun(algorithm)
        with suppress(CrashError):
            shoot(world, before=At(crashed, crash))
        one = world.process(SHOT, before=At(first, Pause))
        other = world.process(SHOT, before=At(second, Pause))
        one_waits, other_waits = resume(one), resume(other)
        assert not one_waits or not resume(one)
        world.consume()
        assert not other_waits or not resume(other)
        world.consume()
        assert_one_hit(world)


def test_a_copy_whose_worker_wakes_up_for_one_last_call(algorithm):
    # It makes the call that it was about to make, as a request that was long under way, and is heard of no more.
    count = len(calls(algorithm)) + MORE
    for last, second in product(range(1, count), range(1, count)):
        world = begun(algorithm)
        one = world.process(SHOT, before=At(last, Pause), after=At(last, crash))
        other = world.process(SHOT, before=At(second, Pause))
        one_waits, other_waits = resume(one), resume(other)
        if one_waits:
            with pytest.raises(CrashError):
                resume(one)
        assert not other_waits or not resume(other)
        finish(world)
        assert_one_hit(world)


def test_two_messages_of_one_object_are_both_processed_whoever_comes_first(algorithm):
    alone = new_world(algorithm, diary.app)
    alone.deliver(write("a"))
    for number in range(1, len(alone.calls) + 1):
        world = new_world(algorithm, diary.app)
        other = At(number, partial(world.process, write("b")))
        drive(world.process(write("a"), before=other))

        lines = world.state("Diary", diary.DIARY)["lines"]
        assert sorted(lines) == ["a", "b"]  # type: ignore[call-overload]
        pages = {tuple(diary.Wrote.model_validate_json(output.body).on_page) for output in world.published}
        assert pages == {tuple(lines[:1]), tuple(lines)}  # type: ignore[index, arg-type]
        assert world.garbage() == []
