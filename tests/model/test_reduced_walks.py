"""A reduced walk breaks what a whole one breaks, and ends where it ends; it sees what a run knows, and no more."""

from functools import partial

import pytest

from tests.model.calls import ask
from tests.model.catalogue import found_with
from tests.model.contents import Contents
from tests.model.explorer import walk_of, without_collections
from tests.model.histories import DONE, Histories, Job
from tests.model.mistakes.mistake import Mistake
from tests.model.mistakes.outboxes import FAMILIES
from tests.model.processes import Process
from tests.model.reduction import LocalStates, Reduction, Symmetry
from tests.model.scenarios.entities import outbox, with_store
from tests.model.scenarios.entities import tokens as with_tokens
from tests.model.shapes import NoShapeError, Shapes
from tests.model.world import Bounds

ORDERED, TIMELESS = Reduction(), Reduction(timeless=True)
LONG = {
    "tokens: created though the message is finished",
    "tokens: each attempt has the same ids",
    "tokens: asked before the entity is loaded",
}
QUICK_WALKS = [
    (outbox("x"), Bounds(1, 2, 1), TIMELESS),
    (outbox("x"), Bounds(1, 1, 0, cuts=1), ORDERED),
    (with_store("x", swept=True), Bounds(2, 1), ORDERED),
    (with_tokens("x", swept=True), Bounds(1, 1), ORDERED),
]
WALKS = [
    (outbox("x", copies=3), Bounds(3), ORDERED),
    (outbox("x", copies=2), Bounds(2, 0, 1), TIMELESS),
    (outbox("x", "y"), Bounds(2, 1), ORDERED),
    (with_store("x"), Bounds(1, 2, 1), TIMELESS),
    (with_store("x", copies=2), Bounds(2, 1), TIMELESS),
    (with_tokens("x"), Bounds(1, 1, 1), TIMELESS),
    (with_tokens("x", copies=2), Bounds(2), ORDERED),
]


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(each, id=each.name, marks=[pytest.mark.thorough] if each.name in LONG else [])
        for each in FAMILIES
    ],
)
def test_it_finds_each_planted_mistake(mistake: Mistake):
    whole, reduced = found_with(mistake.name), mistake.look_for(ORDERED)

    assert whole.violation is not None
    assert reduced.violation is not None, f"not found in {reduced.worlds} states"
    assert reduced.violation.invariant == whole.violation.invariant
    assert reduced.worlds <= whole.worlds
    assert mistake.replay(reduced).problem == reduced.violation.problem
    assert mistake.replay(reduced, planted=False).problem is None


@pytest.mark.parametrize(
    ("scenario", "bounds", "reduction"),
    [*QUICK_WALKS, *(pytest.param(*walk, marks=pytest.mark.thorough) for walk in WALKS)],
)
def test_it_ends_in_the_same_worlds_and_kills_runs_at_the_same_points(scenario, bounds, reduction):
    shapes = Shapes()
    whole, reduced = (_Seen(scenario, bounds, each, shapes) for each in (None, reduction))

    assert whole.report.violation is None
    assert reduced.report.violation is None
    assert reduced.ends == whole.ends
    assert reduced.report.crash_points == whole.report.crash_points
    assert reduced.report.worlds < whole.report.worlds


class _Seen:
    """What a walk saw: its report, and the ends by what tables hold and what happened, whatever their marks are."""

    def __init__(self, scenario, bounds, reduction, shapes):
        with pytest.MonkeyPatch.context() as patch, without_collections():
            scenario.patch(patch)
            walk = walk_of(scenario, bounds, reduction, patch)
            symmetry = Symmetry(walk.engine, shapes, timeless=True)
            self.ends = set()
            patch.setattr(walk.engine, "broken", self._noting_ends(walk.engine.broken, symmetry))
            self.report = walk.run()

    def _noting_ends(self, broken, symmetry):
        def noting(world):
            if world.is_quiescent:
                self.ends.add(symmetry.end(world))
            return broken(world)

        return noting


@pytest.mark.thorough
def test_runs_in_the_same_local_state_go_on_alike():
    """What the walk takes for one moment asks the same when it is driven there the other way."""
    with pytest.MonkeyPatch.context() as patch:
        scenario = with_tokens("x", copies=2)
        walk = walk_of(scenario, Bounds(2, 1), TIMELESS, patch)
        walk.run()
        histories = walk.engine.histories
        merged = [pair for pair in histories.merged if pair[0].call != DONE]
        went_on = 0
        for moment, known in merged[::5]:
            for answer, following in histories[known].following.items():
                other, expected = histories.another_way(moment, answer), histories[following]
                assert (other.call, other.result) == (expected.call, expected.result)
                assert other.shape == expected.shape
                went_on += 1

    assert went_on > 100


def test_code_that_compares_times_cannot_be_walked_as_if_it_did_not():
    name = "tokens: the entity is stored without checking the ETag"
    (mistake,) = [each for each in FAMILIES if each.name == name]

    found = mistake.look_for(TIMELESS).violation

    assert found is not None
    assert "ComparedError" in found.problem


def test_code_that_goes_round_for_ever_is_found(monkeypatch):
    """Without counting how often a run tried, nothing else ends it."""
    from eventstore import ConcurrencyConflictError
    from runtime.algorithms.outbox.algorithm import TokenBased

    async def try_again(self, entity, message):
        raise ConcurrencyConflictError(entity.key, "its token is gone")

    monkeypatch.setattr(TokenBased, "forget_leftover", try_again)

    scenario = with_tokens("x", copies=2)
    with pytest.MonkeyPatch.context() as patch:
        found = walk_of(scenario, Bounds(2), TIMELESS, patch).run().violation

    assert found is not None
    assert found.invariant == "Ends"


def shapes_of(*coroutines):
    shapes = Shapes()
    return [shapes.of(coroutine).number for coroutine in coroutines]


def asked(coroutine, *answers):
    """Drive a coroutine to its first call, and on with answers."""
    coroutine.send(None)
    for answer in answers:
        coroutine.send(answer)
    return coroutine


_SHAPES = Shapes()


async def _asks(table):
    return await ask(table, "get", "p", "r")


async def _forgets():
    await _asks("first")
    await _asks("second")


async def _remembers():
    first = await _asks("first")
    await _asks("second")
    return first


async def _overwrites():
    found = await _asks("first")
    found = await _asks("second")
    return found  # noqa: RET504 - it is there for this


async def _goes_through(things):
    for _ in things:
        await _asks("first")


async def _gathers(things):
    return [await _asks("first") for _ in things]


async def _gives(things):
    for thing in things:
        await _asks("first")
        yield thing


async def _sums(things):
    return sum([thing async for thing in _gives(things)])


async def _waits_with(*things):
    await _asks("first")
    return things


@pytest.mark.parametrize("forgetful", [_forgets, _overwrites])
def test_what_is_not_read_again_is_forgotten(forgetful):
    one, other = shapes_of(asked(forgetful(), "one"), asked(forgetful(), "other"))

    assert one == other


def test_what_is_read_later_is_not():
    one, other = shapes_of(asked(_remembers(), "one"), asked(_remembers(), "other"))

    assert one != other


@pytest.mark.parametrize("loop", [_goes_through, _gathers, _sums])
def test_how_far_a_loop_has_come_is_seen(loop):
    first, second, again = shapes_of(
        asked(loop([1, 1, 1])), asked(loop([1, 1, 1]), "same"), asked(loop([1, 1, 1]), "same")
    )

    assert first != second
    assert second == again


def test_where_a_coroutine_stands_is_seen():
    first, second = shapes_of(asked(_forgets()), asked(_forgets(), None))

    assert first != second


def test_ids_of_processes_are_told_apart_only_from_each_other():
    one, other = Process(1), Process(2)
    drawn = one.draw_id(), one.draw_id(), other.draw_id()

    alike, alike_too, twice = shapes_of(
        asked(_waits_with(drawn[0], drawn[1])),
        asked(_waits_with(drawn[2], drawn[0])),
        asked(_waits_with(drawn[0], drawn[0])),
    )

    assert alike == alike_too
    assert alike != twice


def test_a_draw_is_known_again_in_its_other_forms():
    shapes, process = Shapes(), Process(3)
    content = process.draw()
    of_it = shapes.of(content, f"named {content.hex()[:12]}")
    of_another = shapes.of(content, f"named {process.draw_id()}")

    assert of_it.marks == (("drawn", 3, 1),)
    assert len(of_another.marks) == 2
    assert of_it.number != of_another.number


def test_what_can_change_is_told_apart_even_when_it_is_equal():
    shared = [1]

    same, different = shapes_of(asked(_waits_with(shared, shared)), asked(_waits_with([1], [1])))

    assert same != different


def test_who_has_drawn_more_is_in_another_state_or_he_would_draw_the_same_again():
    async def _draws(process, often):
        for _ in range(often):
            process.draw_id()
        await _asks("first")

    once, again, twice = (_state(partial(_draws, often=often)) for often in (1, 1, 2))

    assert once == again
    assert once != twice


def _state(start):
    """Return the local state of a first run at its first moment, in the words of always the same shapes."""
    contents = Contents()
    histories = Histories((Job("job", start),), contents)
    return LocalStates(contents, _SHAPES, Bounds()).of(histories[histories.start(0, 0)], None)


def test_times_are_marks_in_whatever_form():
    process, shapes = Process(0), Shapes()
    early, late = process.clock(), process.clock()

    one, other = shapes.of(early, late), shapes.of(late, early)

    assert one.number == other.number
    assert one.times == (early, late)
    assert other.times == (late, early)


def test_what_has_no_known_parts_is_named():
    with pytest.raises(NoShapeError, match=r"Say in tests\.model\.shapes what a memoryview consists of"):
        Shapes().of(memoryview(b""))
