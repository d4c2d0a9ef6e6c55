"""What each way of delivering does not promise does happen: the checker shows it, and finds nothing else."""

import pytest

from tests.model.calls import Call
from tests.model.explorer import explore
from tests.model.scenarios.delivery import SENT_ONCE, SENT_OR_SAID, at_least_once, at_most_once, in_redis
from tests.model.schedule import replay, seed, table
from tests.model.world import Bounds


def _shown(scenario, bounds) -> str:
    found = explore(scenario, bounds).violation
    assert found is not None
    return table(replay(scenario, seed(scenario, found.schedule)))


def test_at_most_once_loses_what_a_worker_was_going_to_send_when_it_died():
    shown = _shown(at_most_once(invariants=[SENT_OR_SAID]), Bounds(1, 1))

    assert "dies before" in shown
    assert "SentOrSaid: it was not sent, and nothing says so" in shown


def test_at_most_once_loses_nothing_while_nobody_dies():
    assert explore(at_most_once(2, [SENT_OR_SAID]), Bounds(2)).violation is None


def test_at_least_once_sends_again_what_was_sent_by_a_worker_that_died_before_it_sealed_the_key():
    shown = _shown(at_least_once(invariants=[SENT_ONCE]), Bounds(1, 1))

    assert "dies before transact" in shown
    assert "SentOnce: it was sent 2 times" in shown


def test_at_least_once_sends_again_while_a_slow_worker_sends_longer_than_its_lock_lasts():
    shown = _shown(at_least_once(2, [SENT_ONCE]), Bounds(2))

    assert "dies" not in shown
    assert "SentOnce: it was sent 2 times" in shown


def test_a_redis_that_keeps_all_in_memory_sends_twice_at_most_once_after_it_died():
    scenario, bounds = at_most_once(invariants=[SENT_ONCE], keys=in_redis), Bounds(1, cuts=1)
    assert explore(scenario, bounds).violation is None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Call, "makes_durable", Call.is_barrier)
        assert "SentOnce: it was sent 2 times" in _shown(scenario, bounds)
