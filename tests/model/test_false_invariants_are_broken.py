"""What the invariants speak of is reached: the opposite of each, taken for an invariant, is broken."""

from dataclasses import replace

import pytest

from eventstore import RowChangedError, RowExistsError, RowNotFoundError
from tests.model.engine import Engine
from tests.model.explorer import Walk, explore
from tests.model.facts import Invariant, View
from tests.model.mistakes.truncation import LATE
from tests.model.scenarios.state_based import messages
from tests.model.ways import Ways
from tests.model.world import Bounds

OPPOSITES = {
    "nothing is committed": lambda view: view.facts.committed,
    "nothing is published": lambda view: view.facts.published,
    "nothing is acknowledged": lambda view: view.facts.done,
    "there is no second version": lambda view: len(view.facts.committed) > 1,
    "a committed version has always been published": lambda view: (
        len(view.facts.committed) > len({output.sequence >> 20 for output in view.facts.published})
    ),
    "two lines come in one order only": lambda view: (
        [version.message for _, version in view.facts.committed] == ["y", "x"]
    ),
    "nothing ever ends": lambda view: view.is_quiescent,
}


def opposite(name: str, holds) -> Invariant:
    return Invariant(name, lambda view: "it happened" if holds(view) else None)


@pytest.mark.parametrize("name", OPPOSITES)
def test_what_must_happen_happens(name):
    scenario = replace(messages("x", "y"), invariants=[opposite(name, OPPOSITES[name])])

    report = explore(scenario, Bounds(2))

    assert report.violation is not None
    assert report.violation.invariant == name


def test_a_version_is_cut_and_its_late_copy_refused():
    def is_cut_and_acknowledged(view: View) -> bool:
        cut = [version.message for place, version in view.facts.committed if place not in view.held]
        late = [done for done in view.facts.done if done.job == "a"]
        return cut == ["a"] and len(late) > 0 and len(view.facts.committed) == 2

    scenario = replace(LATE, invariants=[opposite("no late copy is refused", is_cut_and_acknowledged)])

    assert explore(scenario, Bounds(2)).violation is not None


def test_races_are_lost_in_the_walk():
    engine = Engine(messages("x", "y"), Bounds(2))

    Walk(Ways(engine)).run()

    refused = {type(answer.error) for answer in engine.contents.answers.values if answer.error}
    assert refused & {RowChangedError, RowExistsError, RowNotFoundError}
