"""A checker that finds nothing in wrong code proves nothing: each of these mistakes must be found."""

import pytest

from tests.model.catalogue import MISTAKES
from tests.model.mistakes.mistake import Mistake
from tests.model.quick import found_with


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_planted_mistake_is_found(mistake: Mistake):
    # When the shipped code is explored with the mistake in it
    report = found_with(mistake.name)

    # Then the invariant breaks
    assert report.violation is not None, f"not found in {report.worlds} states"
    assert report.violation.invariant == mistake.breaks
    print(f"{len(report.violation.schedule)} steps, {report.worlds} states explored")

    # ... again when the seed is replayed, and no more without the mistake
    assert mistake.replay(report).problem == report.violation.problem
    assert mistake.replay(report, planted=False).problem is None


def test_the_mistakes_are_many_and_have_names_of_their_own():
    names = [mistake.name for mistake in MISTAKES]

    assert len(names) == len(set(names)) >= 20
