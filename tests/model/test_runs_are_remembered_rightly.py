"""A run is driven once for each history; that is right only if the code hangs on nothing but its answers."""

import random

import pytest

from tests.model.calls import ask
from tests.model.catalogue import SAMPLES
from tests.model.contents import Answer, Contents
from tests.model.engine import Engine
from tests.model.freezing import frozen
from tests.model.histories import Histories, Job, NotDeterministicError
from tests.model.randomly import sample, walk
from tests.model.scenarios.state_based import messages
from tests.model.world import Bounds


def test_random_schedules_end_alike_when_every_coroutine_is_driven_anew():
    scenario, bounds = messages("x", "y", copies=2), Bounds(3, 2, 2)
    engine = Engine(scenario, bounds)
    for number in range(40):
        path = walk(engine, engine.first(), random.Random(number))
        fresh = Engine(scenario, bounds)
        world = fresh.first()
        for action in path.actions:
            world = fresh.take(world, action)

        last = path.worlds[-1]
        assert fresh.contents.snapshots[world.snapshot] == engine.contents.snapshots[last.snapshot]
        facts, again = engine.chronicle[last.facts], fresh.chronicle[world.facts]
        assert again.committed == facts.committed
        assert set(map(frozen, again.published)) == set(map(frozen, facts.published))
        assert set(again.done) == set(facts.done)


def test_code_that_hangs_on_more_than_its_answers_is_found_out():
    asked = iter(range(10))

    async def fickle(process):
        await ask("states", "get", "p", "first")
        await ask("states", "get", "p", str(next(asked)))
        await ask("states", "get", "p", "last")

    contents = Contents()
    histories = Histories((Job("fickle", fickle),), contents)
    one, other = (contents.answers.number(answer) for answer in (_answer("one"), _answer("other")))
    second = histories.answer(histories.start(0, 0), one)
    histories.answer(second, one)

    with pytest.raises(
        NotDeterministicError, match=r"fickle asked, with the same answers, first for .* then for"
    ):
        histories.answer(second, other)


def test_a_killed_run_does_not_clean_up_after_itself():
    cleaned = []

    async def careful(process):
        try:
            await ask("states", "barrier")
        finally:
            cleaned.append(process.number)

    contents = Contents()
    histories = Histories((Job("careful", careful),), contents)
    histories.start(0, 0)

    assert cleaned == []


@pytest.mark.thorough
def test_random_schedules_beyond_the_bounds_break_nothing():
    for scenario, bounds in SAMPLES:
        drawn = sample(scenario, bounds, 100)
        assert drawn.violation is None
        assert drawn.schedules == 100


def _answer(value: str):
    return Answer(value)
