"""A planted mistake: a change of the shipped code that the checker must find, and where it is looked for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.model.explorer import explore
from tests.model.facts import Scenario
from tests.model.reduction import Reduction
from tests.model.schedule import Replayed, replay, seed
from tests.model.world import Bounds, Report

Plant = Callable[[pytest.MonkeyPatch], object]

CALM, CRASH = Bounds(), Bounds(crashes=1)
"""Two workers, with whom nothing or one thing goes wrong."""
ALONE, ALONE_CRASH = Bounds(1), Bounds(1, 1)
ALONE_LOSS = Bounds(1, losses=1, late_writes=False)


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake, its name, the scenario and the bounds in which it shows, and the invariant that it breaks."""

    name: str
    breaks: str
    scenario: Scenario
    bounds: Bounds
    plant: Plant

    def look_for(self, reduction: Reduction | None = None) -> Report:
        with pytest.MonkeyPatch.context() as patch:
            self.plant(patch)
            return explore(self.scenario, self.bounds, reduction)

    def replay(self, report: Report, *, planted: bool = True) -> Replayed:
        assert report.violation is not None
        with pytest.MonkeyPatch.context() as patch:
            if planted:
                self.plant(patch)
            return replay(self.scenario, seed(self.scenario, report.violation.schedule))


class Mistakes(list[Mistake]):
    def add(self, name, breaks, scenario, bounds=CALM) -> Callable[[Plant], Plant]:
        """Declare a mistake; one plant may be declared for several."""

        def declared(plant: Plant) -> Plant:
            self.append(Mistake(name, breaks, scenario, bounds, plant))
            return plant

        return declared


def instead_of(owner: Any, name: str) -> Callable[[Callable[..., Any]], Plant]:
    """Make a plant of a function that takes the place of a method or function, which is its first argument."""

    def planted(function: Callable[..., Any]) -> Plant:
        def plant(patch: pytest.MonkeyPatch) -> None:
            shipped = getattr(owner, name)
            patch.setattr(owner, name, lambda *given, **named: function(shipped, *given, **named))

        return plant

    return planted


def giving(owner: Any, name: str, value: Any) -> Plant:
    """Make a plant that has a method give a value, whatever its arguments are."""
    return lambda patch: patch.setattr(owner, name, lambda *_, **__: value)


def both(*plants: Plant) -> Plant:
    return lambda patch: [plant(patch) for plant in plants]
