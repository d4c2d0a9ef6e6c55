"""Truncation that is explored beside processing does cut versions, and its late copies do come too late."""

from dataclasses import replace

import pytest

from tests.model.catalogue import TRUNCATION
from tests.model.explorer import explore
from tests.model.facts import Invariant, View

QUICK = [check for check in TRUNCATION if check.is_quick]


def _cut(view: View) -> str | None:
    gone = [place for place, _ in view.facts.committed if place not in view.held]
    return f"{gone[0]} is gone" if gone else None


@pytest.mark.parametrize("check", QUICK, ids=lambda check: check.scenario.name)
def test_something_is_cut(check):
    scenario = replace(check.scenario, invariants=[Invariant("NothingIsCut", _cut)])

    report = explore(scenario, check.bounds)

    assert report.violation is not None
