"""What is promised only to those who keep a promise themselves: the checker finds it, and the pages say so."""

from tests.model.explorer import explore
from tests.model.mistakes.truncation import DIED
from tests.model.scenarios.state_based import deliver
from tests.model.scenarios.truncation import long_ago, truncated_beside
from tests.model.scribe import write
from tests.model.world import Bounds


def test_a_single_message_whose_worker_died_is_lost_where_the_operator_promised_that_it_was_acknowledged():
    # Handled long ago, its worker died before it published, and the queue has it still: --acknowledged-after said no.
    (first,) = long_ago("a")
    scenario = truncated_beside("redelivered after the cut", first, deliver(write("x")), earlier=[])

    report = explore(scenario, Bounds(2, crashes=1))

    assert report.violation is not None
    assert report.violation.invariant in {"NoLost", "DoneWhenAcknowledged"}


def test_without_a_crash_nothing_is_lost_even_then():
    (first,) = long_ago("a")
    scenario = truncated_beside("delivered before the cut", first, deliver(write("x")), earlier=[])

    assert explore(scenario, Bounds(2)).violation is None


def test_and_it_is_not_lost_where_nothing_was_promised():
    assert explore(DIED, Bounds(2, crashes=1)).violation is None
