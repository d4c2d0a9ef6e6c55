"""What is not promised, shown by the checker: it finds it, and the page on verification says so."""

from tests.model.explorer import explore
from tests.model.scenarios.batches import ONE_TOKEN
from tests.model.scenarios.state_based import StateBasedScenario, deliver
from tests.model.scenarios.truncation import long_ago, truncate, truncated_beside
from tests.model.scribe import write
from tests.model.world import Bounds


def test_a_single_message_that_comes_again_after_its_version_was_cut_may_have_lost_its_outputs():
    # Handled long ago, its worker died before it published; the queue brings it again after the version was cut,
    # though the operator promised that messages are acknowledged within a day.
    (first,) = long_ago("a")
    scenario = truncated_beside("redelivered after the cut", first, deliver(write("x")), earlier=[])

    report = explore(scenario, Bounds(2, crashes=1))

    assert report.violation is not None
    assert report.violation.invariant in {"NoLost", "DoneWhenAcknowledged"}


def test_without_that_promise_its_version_is_kept():
    (first,) = long_ago("a")
    jobs = [truncate(promised=False), first, deliver(write("x"))]
    scenario = StateBasedScenario("redelivered, and not cut", jobs, limits=ONE_TOKEN)

    assert explore(scenario, Bounds(2, crashes=1)).violation is None


def test_without_a_crash_nothing_is_lost_even_then():
    (first,) = long_ago("a")
    scenario = truncated_beside("delivered before the cut", first, deliver(write("x")), earlier=[])

    assert explore(scenario, Bounds(2)).violation is None
