"""Schedules are shown, replayed from their seeds, drawn at random, and asked for by the command."""

import random

import pytest

from tests.model.calls import ask
from tests.model.catalogue import SAMPLES, found_with
from tests.model.contents import Answer, Contents, frozen
from tests.model.engine import Engine
from tests.model.histories import Histories, Job, NotDeterministicError
from tests.model.scenarios.state_based import messages
from tests.model.schedule import replay, sample, seed, table, walk
from tests.model.world import Bounds


def test_a_schedule_shows_who_did_what_and_what_came_of_it():
    shown = table(replay(messages("x", copies=2), "+x +x 0 1 0 1 0 0 0!")).splitlines()

    assert "who" in shown[0]
    assert "1 (x)  is delivered" in shown[2]
    assert "query Scribe-b" in shown[3]
    assert shown[5].rstrip().endswith("Scribe/1 by x: x"), "what it commits"
    assert "RowExistsError" in shown[6], "what it is answered"
    assert "publish Wrote" in shown[8]
    assert "0 (x)  dies before publish Turned" in shown[9]
    assert shown[-1] == "Nothing is broken."


def test_every_kind_of_accident_has_a_word():
    replayed = replay(messages("x"), "+x 0? 0 0& 0 0~ *0 0 0! +x 1 % +x 2 2 2 2 2")

    text = table(replayed)
    assert "times out without effect: query" in text
    assert "times out and takes effect later: transact" in text
    assert "lands: transact" in text
    assert "dies before" in text
    assert "the power is cut" in text
    assert replayed.problem is None


@pytest.mark.parametrize(
    ("words", "effects"),
    [
        ("0?", [""]),
        ("0~", ["Scribe/1 by x: x"]),
        ("0& *0", ["", "Scribe/1 by x: x"]),
        ("0& 0! *0", ["", "", "Scribe/1 by x: x"]),
    ],
)
def test_a_write_without_an_answer_takes_effect_never_or_at_once_or_later(words, effects):
    lines = replay(messages("x"), f"+x 0 {words}").lines

    assert [line.effect for line in lines[2:]] == effects


def test_the_schedule_of_a_violation_is_the_shortest():
    found = found_with("published before the append").violation

    assert found is not None
    assert seed(messages("x"), found.schedule) == "+x 0 0"


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
    one, other = (contents.answers.number(answer) for answer in (Answer("one"), Answer("other")))
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
        assert drawn.executions == 100
