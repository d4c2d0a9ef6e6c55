"""A driver holds the lease while it works, renews it, gives it back, and learns that it was taken over."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from eventstore import drive
from runtime.batch_options import TablePlace
from runtime.clock import system_clock
from runtime.errors import LeaseHeldError, LeaseLostError
from runtime.leases import LENGTH, Lease, Leases
from runtime.spark import truncation as module
from runtime.spark.truncation import holding
from runtime.spark.worker.connection import Connection


@pytest.fixture
def place(tmp_path: Path) -> TablePlace:
    place = TablePlace(f"sqlite:///{tmp_path}/store.db", "games")
    Connection(place).close()
    return place


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(module, "RENEW_SECONDS", 0.01)


def leases(place: TablePlace, clock=system_clock) -> Leases:
    return Leases(Connection(place).table, clock)


def found(place: TablePlace) -> Lease | None:
    return drive(leases(place).find())


def test_it_is_held_in_the_block_and_given_back_after_it(place):
    with holding(place, system_clock, take_over=False) as token:
        held = found(place)
        assert held is not None
        assert held.token == token
        assert "(process " in held.holder
        with pytest.raises(LeaseHeldError), holding(place, system_clock, take_over=False):
            pytest.fail("It was taken twice.")

    assert found(place) is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_it_is_given_back_when_the_block_is_broken_off(place, error):
    with pytest.raises(error), holding(place, system_clock, take_over=False):
        raise error

    assert found(place) is None


def test_it_is_renewed_as_long_as_the_block_takes(place):
    renewed, began = threading.Event(), system_clock()
    shown = iter(range(10**6))

    def clock() -> int:
        now = next(shown)
        if now > 10:
            renewed.set()
        return began + now * LENGTH

    with holding(place, clock, take_over=False):
        first = found(place)
        assert renewed.wait(60)
        last = found(place)

    assert first is not None
    assert last is not None
    assert last.expires_at >= first.expires_at + LENGTH
    assert found(place) is None


def test_whoever_it_is_taken_from_is_told_and_leaves_it_to_the_other(place):
    def lose_it() -> None:
        with holding(place, system_clock, take_over=False):
            (keeper,) = (thread for thread in threading.enumerate() if thread.name == "lease")
            drive(leases(place).take("grace", take_over=True))
            keeper.join(60)
            assert not keeper.is_alive()

    with pytest.raises(LeaseLostError, match="taken over by grace"):
        lose_it()

    held = found(place)
    assert held is not None
    assert held.holder == "grace"


def test_it_is_taken_over_on_demand(place):
    drive(leases(place).take("ada"))

    with holding(place, system_clock, take_over=True) as token:
        held = found(place)
        assert held is not None
        assert held.token == token
