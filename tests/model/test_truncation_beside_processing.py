"""Whatever is cut while messages come: no message of the past is taken for new, and no version is lost."""

from dataclasses import replace

import pytest

from tests.model.catalogue import TRUNCATION
from tests.model.explorer import explore
from tests.model.facts import Invariant, View
from tests.model.schedule import replay, seed, table
from tests.model.test_state_based_processing import name

QUICK = [check for check in TRUNCATION if check.is_quick]


@pytest.mark.parametrize("check", QUICK, ids=name)
def test_nothing_is_broken_in_any_interleaving(check):
    report = explore(check.scenario, check.bounds)

    assert report.violation is None, table(
        replay(check.scenario, seed(check.scenario, report.violation.schedule))
    )
    assert report.ends > 0


def _cut(view: View) -> str | None:
    gone = [place for place, _ in view.facts.committed if place not in view.held]
    return f"{gone[0]} is gone" if gone else None


@pytest.mark.parametrize("check", QUICK, ids=name)
def test_something_is_cut(check):
    scenario = replace(check.scenario, invariants=[Invariant("NothingIsCut", _cut)])

    report = explore(scenario, check.bounds)

    assert report.violation is not None
