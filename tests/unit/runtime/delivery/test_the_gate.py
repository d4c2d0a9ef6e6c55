"""A receiver is not asked for more than it takes: a pace, and a circuit breaker."""

import pytest

from runtime.delivery import BreakerPolicy, DeliveryPolicy, TransientError
from runtime.delivery.gate import CircuitBreaker, Pace
from runtime.errors import DeliveryStoppedError
from tests.unit.runtime.delivery.office import AT_LEAST_ONCE, message


class Watch:
    """A clock that shows what it was told."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def breaker(watch):
    return CircuitBreaker(BreakerPolicy(failures=3, first=1, longest=4, give_up_after=60), watch)


def fail(breaker, times=1):
    for _ in range(times):
        breaker.note_failure(TransientError("busy"))


def test_turns_are_spread_evenly(watch):
    pace = Pace(4, watch)

    assert [pace.take_turn() for _ in range(3)] == [0, 0.25, 0.5]


def test_a_turn_that_was_not_used_is_the_next_ones(watch):
    pace = Pace(4, watch)
    pace.take_turn()
    pace.give_back()

    assert pace.take_turn() == 0


def test_time_in_which_nothing_was_sent_is_not_saved_up(watch):
    pace = Pace(4, watch)
    watch.now += 10

    assert [pace.take_turn() for _ in range(2)] == [0, 0.25]


def test_without_a_limit_all_pass(watch):
    assert [Pace(None, watch).take_turn() for _ in range(3)] == [0, 0, 0]


def test_failures_that_are_not_in_a_row_open_nothing(breaker):
    for _ in range(5):
        fail(breaker, 2)
        breaker.note_answer()

    assert breaker.seconds_to_wait() == 0


def test_one_message_tries_whether_an_open_breaker_can_be_closed(breaker, watch):
    fail(breaker, 3)
    assert 0.5 <= breaker.seconds_to_wait() <= 1

    watch.now += 1
    assert breaker.seconds_to_wait() == 0
    assert breaker.seconds_to_wait() > 0  # another waits for it

    breaker.note_answer()
    assert breaker.seconds_to_wait() == 0
    assert not breaker.is_open


def test_while_it_fails_the_pauses_double(breaker, watch):
    fail(breaker, 3)
    longest = []
    for _ in range(4):
        watch.now += 4
        assert breaker.seconds_to_wait() == 0
        fail(breaker)
        longest.append(breaker.seconds_to_wait())

    assert 1 <= longest[0] <= 2 <= longest[1] <= 4
    assert max(longest) <= 4


def test_what_was_sent_before_it_opened_makes_no_pause_longer(breaker):
    fail(breaker, 20)

    assert breaker.seconds_to_wait() <= 1


def test_a_message_that_needed_no_sending_leaves_the_try_to_the_next(breaker, watch):
    fail(breaker, 3)
    watch.now += 1
    assert breaker.seconds_to_wait() == 0

    breaker.note_nothing()

    assert breaker.seconds_to_wait() == 0


def test_in_the_end_it_gives_up(breaker, watch):
    fail(breaker, 3)
    watch.now += 61
    breaker.seconds_to_wait()

    with pytest.raises(DeliveryStoppedError, match=r"no message for 61 s.*TransientError: busy"):
        fail(breaker)


def test_at_most_once_a_receiver_that_is_down_costs_few_messages(office):
    # Each of them is lost, as it is not sent again
    office.errors = [ConnectionError("down")] * 8
    policy = DeliveryPolicy(concurrency=1, breaker=BreakerPolicy(failures=5, first=0.01, longest=0.02))

    assert office.deliver([message(n) for n in range(100)], policy=policy) == {"not_sent": 8, "sent": 92}


@pytest.mark.parametrize("error", [ConnectionError("down"), NameError("no mailer")])
def test_a_receiver_that_stays_down_ends_the_delivery(office, error):
    office.errors = [error] * 1000
    policy = DeliveryPolicy(
        concurrency=2, breaker=BreakerPolicy(failures=5, first=0.001, longest=0.01, give_up_after=0.1)
    )

    with pytest.raises(DeliveryStoppedError, match=str(error)):
        office.deliver([message(n) for n in range(1000)], AT_LEAST_ONCE, policy=policy)

    assert office.calls < 200
    assert len(office.records()) < 200
