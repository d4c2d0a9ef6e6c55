"""Whatever the interleaving, the crashes and the lost answers: each message takes effect exactly once."""

import pytest

from tests.model.catalogue import CHECKS
from tests.model.quick import QUICK, name, report_of
from tests.model.schedule import replay, seed, table
from tests.model.world import Kind


@pytest.mark.parametrize("number", QUICK, ids=name)
def test_nothing_is_broken_in_any_interleaving(number):
    report, scenario = report_of(number), CHECKS[number].scenario

    assert report.violation is None, table(replay(scenario, seed(scenario, report.violation.schedule)))
    assert report.ends > 0
    assert (report.steps[Kind.CRASH] > 0) == (report.bounds.crashes > 0)
    assert (report.steps[Kind.CUT] > 0) == (report.bounds.cuts > 0)


@pytest.mark.parametrize(
    ("scenario", "workers", "crashes", "losses"),
    [
        ("1 message, 2 copies", 2, 2, 1),
        ("2 messages, 2 copies", 2, 1, 0),
        ("1 message, 3 copies", 3, 1, 0),
        ("outbox: x; 2 copies each", 2, 2, 1),
        ("outbox: x, y; 2 copies each", 2, 1, 0),
        ("outbox: x; 3 copies each", 3, 1, 0),
        ("de-duplication store: x; 2 copies each", 2, 2, 1),
        ("de-duplication store: x, y; 2 copies each", 2, 1, 0),
        ("de-duplication store: x; 3 copies each", 3, 1, 0),
        ("tokens: x; 2 copies each", 2, 2, 1),
        ("tokens: x, y; 2 copies each", 2, 1, 0),
        ("tokens: x; 3 copies each", 3, 1, 0),
        ("pictures: x; 2 copies each", 2, 1, 0),
        ("delivery at most once: 2 copies", 2, 2, 1),
        ("delivery at least once: 2 copies", 2, 2, 0),
    ],
)
def test_the_bounds_that_were_promised_are_in_the_catalogue(scenario, workers, crashes, losses):
    bounds = [check.bounds for check in CHECKS if check.scenario.name == scenario]

    assert any(
        each.workers >= workers and each.crashes >= crashes and each.losses >= losses for each in bounds
    )
