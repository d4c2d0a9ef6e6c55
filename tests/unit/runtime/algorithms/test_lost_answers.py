"""A lost answer is as good as a crash, whether the call took effect or not: read again, and go on from there."""

from contextlib import suppress
from itertools import count

import pytest

from eventstore import StoreUnavailableError, drive
from tests.unit.runtime import diary
from tests.unit.runtime.algorithms.game import (
    assert_one_hit,
    begun,
    calls,
    finish,
    new_world,
    shoot,
)
from tests.unit.runtime.algorithms.world import ALGORITHMS, At, lose_answer
from tests.unit.runtime.diary import Wrote, write

pytestmark = pytest.mark.parametrize("algorithm", ALGORITHMS)


def stores(algorithm) -> list[int]:
    """Return the numbers of the calls that have answers to lose: those of the stores."""
    return [
        number
        for number, call in enumerate(calls(algorithm), start=1)
        if call != "publish" and not call.endswith("barrier")
    ]


def test_a_call_that_took_effect_although_its_answer_was_lost_is_not_repeated(algorithm):
    for number in stores(algorithm):
        world = begun(algorithm)
        shoot(world, after=At(number, lose_answer))
        world.consume()
        assert_one_hit(world)


def test_a_call_that_took_no_effect_is_made_up_for(algorithm):
    for number in stores(algorithm):
        world = begun(algorithm)
        shoot(world, before=At(number, lose_answer))
        world.consume()
        assert_one_hit(world)


def test_two_lost_answers_in_a_row_change_nothing(algorithm):
    for number in stores(algorithm):
        for later in range(number + 1, number + 12):
            world = begun(algorithm)
            with suppress(
                StoreUnavailableError
            ):  # a lost barrier is not made up for: the message is redelivered
                shoot(world, before=At(later, lose_answer), after=At(number, lose_answer))
            finish(world)
            assert_one_hit(world)


def test_what_is_published_is_what_is_stored_with_the_clock_of_then(algorithm):
    # Given a write whose answer is lost, and time that goes on
    world = new_world(algorithm, diary.app)
    writes = count(1)

    def lose(call: str) -> None:
        if call == "states transact" and next(writes) == 1:
            world.clock.now += 60_000_000
            raise StoreUnavailableError("no answer", outcome_unknown=True)

    # When the message is read again
    drive(world.process(write("a"), after=lose))

    # Then what is published tells the time that is stored, not the one of the second attempt
    (output,) = {output.body for output in world.published}
    assert Wrote.model_validate_json(output).now == "2026-01-01T00:00:00+00:00"
