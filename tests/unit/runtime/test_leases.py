"""The lease: one holder at a time, who renews it; expired it may be taken, and whoever lost it is told."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import StoreUnavailableError, drive
from runtime.errors import LeaseHeldError, LeaseLostError
from runtime.leases import LENGTH, CleanUpLease, Lease
from tests.unit.runtime.accidents import disturbed, lose_answer
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import ToldClock


@pytest.fixture
def clock():
    return ToldClock()


@pytest.fixture
def leases(table, clock):
    return CleanUpLease(table, clock)


def test_a_second_one_is_refused_and_told_who_holds_it_and_until_when(leases):
    drive(leases.take("ada on a (process 1)"))

    with pytest.raises(LeaseHeldError, match=r"by ada on a \(process 1\) until 2026-01-01T00:01:00.*--take"):
        drive(leases.take("grace on b (process 2)"))
    with pytest.raises(LeaseHeldError, match="ada"):
        drive(leases.check_free())


def test_it_may_be_taken_once_it_has_expired_or_was_released(leases, clock, table):
    first = drive(leases.take("ada"))
    clock.now += LENGTH - 1
    with pytest.raises(LeaseHeldError):
        drive(leases.take("grace"))

    clock.now += 1
    drive(leases.check_free())
    second = drive(leases.take("grace"))

    drive(leases.release(first))  # which is no longer theirs
    assert drive(leases.find()) == second
    drive(leases.release(second))
    assert rows(table) == {}
    drive(leases.take("ada"))


def test_whoever_lost_it_to_another_is_told_when_renewing_and_workers_when_they_look(leases):
    lost = drive(leases.take("ada"))
    taken = drive(leases.take("grace", take_over=True))

    with pytest.raises(LeaseLostError, match="taken over by grace until"):
        drive(leases.renew(lost))
    with pytest.raises(LeaseLostError, match="has stopped, as its lease was taken over by grace"):
        drive(leases.check(lost.token))
    drive(leases.check(taken.token))


def test_a_renewal_whose_answer_was_lost_is_no_loss(table, clock, leases):
    lease = drive(leases.take("ada"))
    with pytest.raises(StoreUnavailableError):
        drive(CleanUpLease(disturbed(table, lose_answer, after=True), clock).renew(lease))

    renewed = drive(leases.renew(lease))

    assert (renewed.holder, renewed.token) == ("ada", lease.token)
    with pytest.raises(StoreUnavailableError):
        drive(CleanUpLease(disturbed(table, lose_answer, after=True), clock).renew(renewed))
    drive(leases.release(renewed))
    assert rows(table) == {}


steps = st.lists(
    st.tuples(
        st.sampled_from(["ada", "grace", "edsger"]),
        st.sampled_from(["take", "take over", "renew", "release", "check"]),
        st.integers(0, 2 * LENGTH),
    ),
    max_size=20,
)


@given(steps)
def test_never_do_two_hold_it_that_both_go_on(made):
    table, clock = memory_table(), ToldClock()
    leases = CleanUpLease(table, clock)
    held: dict[str, Lease] = {}
    for name, verb, passed in made:
        clock.now += passed
        try:
            _step(leases, held, name, verb)
        except LeaseLostError:
            held.pop(name)
        except LeaseHeldError:
            assert verb == "take"

        going_on = {name for name, lease in held.items() if _goes_on(leases, lease)}
        holder = drive(leases.find())
        assert len(going_on) <= 1
        assert going_on == ({holder.holder if holder else None} & set(held))


def _step(leases: CleanUpLease, held: dict[str, Lease], name: str, verb: str) -> Any:
    if verb.startswith("take"):
        held[name] = drive(leases.take(name, take_over=verb == "take over"))
    elif name not in held:
        return
    elif verb == "renew":
        held[name] = drive(leases.renew(held[name]))
    elif verb == "release":
        drive(leases.release(held.pop(name)))
    else:
        drive(leases.check(held[name].token))


def _goes_on(leases: CleanUpLease, lease: Lease) -> bool:
    try:
        drive(leases.check(lease.token))
    except LeaseLostError:
        return False
    return True
