"""What a run knows at a moment: where it stands, what it will still read, and what lies on its value stacks."""

from functools import partial

import pytest

from tests.model.calls import ask
from tests.model.contents import Contents
from tests.model.histories import Histories, Job
from tests.model.local_states import LocalStates
from tests.model.processes import Process
from tests.model.shapes import NoShapeError, Shapes
from tests.model.world import Bounds


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
