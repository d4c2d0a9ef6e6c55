"""A reduced walk breaks what a whole one breaks, and ends where it ends; it sees what a run knows, and no more."""

import pytest

from tests.model.catalogue import found_with
from tests.model.explorer import walk_of, without_collections
from tests.model.histories import DONE
from tests.model.mistakes import Mistake
from tests.model.reduction import Reduction, Symmetry
from tests.model.scenarios.entities import MISTAKES, outbox, with_store
from tests.model.scenarios.entities import tokens as with_tokens
from tests.model.shapes import Shapes
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
        for each in MISTAKES
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
    (mistake,) = [each for each in MISTAKES if each.name == name]

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
