"""A planted mistake: a change of the shipped code that the checker must find, and where it is looked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.model.explorer import explore
from tests.model.facts import Scenario
from tests.model.reduction import Reduction
from tests.model.report import Report
from tests.model.schedule import Replayed, replay, seed
from tests.model.world import Bounds


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake, its name, the scenario and the bounds in which it shows, and the invariant that it breaks."""

    name: str
    plant: Callable[[pytest.MonkeyPatch], None]
    scenario: Scenario
    bounds: Bounds
    breaks: str

    def look_for(self, reduction: Reduction | None = None) -> Report:
        """Explore the scenario with the mistake planted."""
        with pytest.MonkeyPatch.context() as patch:
            self.plant(patch)
            return explore(self.scenario, self.bounds, reduction)

    def replay(self, report: Report, *, planted: bool = True) -> Replayed:
        """Carry out the schedule of a report again, with the mistake or without it."""
        assert report.violation is not None
        with pytest.MonkeyPatch.context() as patch:
            if planted:
                self.plant(patch)
            return replay(self.scenario, seed(self.scenario, report.violation.schedule))
