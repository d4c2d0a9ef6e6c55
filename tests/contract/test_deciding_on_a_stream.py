"""Folding a stream to a state, and deciding on it: a till that must not be overdrawn."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import BaseModel

from eventstore import (
    ConcurrencyConflictError,
    InterceptedTable,
    Partition,
    StoreUnavailableError,
    Stream,
    StreamTruncatedError,
)
from eventstore.sourcing import EventCodec, Snapshot, decide, fold


class Paid(BaseModel, frozen=True):
    amount: int


class Till(BaseModel, frozen=True):
    balance: int = 0
    events: int = 0


CODEC = EventCodec(Paid)
EMPTY = Till()


def evolve(till, event):
    return Till(balance=till.balance + event.amount, events=till.events + 1)


def pay(*amounts):
    def decision(till):
        if till.balance + sum(amounts) < 0:
            message = f"only {till.balance} are left"
            raise ValueError(message)
        return [Paid(amount=amount) for amount in amounts]

    return decision


async def act(place, decision, **options):
    return await decide(place, decision, evolve, initial=EMPTY, codec=CODEC, **options)


async def look(place, **options):
    return await fold(place, EMPTY, evolve, codec=CODEC, **options)


@pytest.fixture
def watched(table):
    return InterceptedTable(table)


@pytest.fixture
def place(watched):
    return Partition(watched, "till-1")


def test_what_was_decided_is_the_state_of_the_next_decision(run, place):
    first = run(act(place, pay(5, 6)))
    second = run(act(place, pay(-10)))

    assert (first.state.balance, first.events, first.stream.version) == (
        11,
        (Paid(amount=5), Paid(amount=6)),
        2,
    )
    assert (second.state, second.stream.version) == (Till(balance=1, events=3), 3)
    assert run(look(place)).state == second.state
    assert run(look(place)).stream == run(Stream.open(place))


def test_without_a_stream_the_state_is_the_initial_one(run, place):
    found = run(look(place))

    assert (found.state, found.stream.version, found.stream.etag) == (EMPTY, 0, None)


def test_a_refusal_and_no_event_write_nothing(run, place, watched):
    run(act(place, pay(5)))
    watched.counts.clear()

    with pytest.raises(ValueError, match="only 5 are left"):
        run(act(place, pay(-6)))
    assert run(act(place, pay())).state.balance == 5

    assert watched.counts == {"query": 2}


def test_a_decision_is_made_again_on_the_state_that_somebody_else_has_made(run, table, place, pauses):
    async def be_faster(name, _partition_key, _number):
        if name == "transact" and disturbed.counts["transact"] <= 2:
            await act(place, pay(-3))

    def decision(till):
        seen.append(till.balance)
        return pay(-4)(till)

    seen: list[int] = []
    disturbed = InterceptedTable(table, before=be_faster)
    run(act(place, pay(10)))

    done = run(act(Partition(disturbed, place.key), decision))

    assert seen == [10, 7, 4]
    assert done.state.balance == 0
    assert len(pauses) == 2


def test_attempts_are_limited(run, table, place, pauses):
    async def be_faster(name, _partition_key, _number):
        if name == "transact":
            await act(place, pay(1))

    disturbed = InterceptedTable(table, before=be_faster)

    with pytest.raises(ConcurrencyConflictError):
        run(act(Partition(disturbed, place.key), pay(1), attempts=3))

    assert disturbed.counts["transact"] == 3
    assert len(pauses) == 2


def test_a_write_whose_answer_was_lost_is_not_made_again(run, table, place):
    def lose(name, *_):
        if name == "transact":
            raise StoreUnavailableError("no answer", outcome_unknown=True)

    with pytest.raises(StoreUnavailableError):
        run(act(Partition(InterceptedTable(table, after=lose), place.key), pay(5)))

    assert run(look(place)).state.balance == 5


def test_of_many_at_once_none_is_lost_and_the_till_is_not_overdrawn(run, table):
    """Twelve take 3 of 20: six of them get it."""
    place = Partition(table, "till-1")

    async def take():
        try:
            await act(place, pay(-3))
        except ValueError:
            return 0
        return 3

    async def all_at_once():
        await act(place, pay(20))
        return sum(await asyncio.gather(*[take() for _ in range(12)]))

    assert run(all_at_once()) == 18
    assert run(look(place)).state == Till(balance=2, events=7)


@pytest.mark.parametrize("every", [1, 3])
def test_with_a_snapshot_only_the_events_after_it_are_read(run, place, watched, every):
    snapshot = Snapshot(Till, every=every)
    for number in range(1, 8):
        run(act(place, pay(number), snapshot=snapshot))
    watched.counts.clear()

    found = run(look(place, snapshot=snapshot))

    assert found.state == Till(balance=28, events=7)
    assert watched.counts == ({"get": 1} if every == 1 else {"get": 1, "query": 1})
    kept = 7 // every * every
    assert found.stream.properties["SnapshotVersion"] == kept
    assert run(look(place)).state == found.state
    run(Stream.truncate(found.stream, kept + 1))
    assert run(look(place, snapshot=snapshot)).state == found.state
    assert run(act(place, pay(2), snapshot=snapshot)).state == Till(balance=30, events=8)


def test_a_snapshot_leaves_the_streams_own_properties_alone(run, place):
    run(Stream.provision(place, {"Owner": "me"}))

    done = run(act(place, pay(5), snapshot=Snapshot(Till)))

    assert done.stream.properties["Owner"] == "me"
    assert run(Stream.open(place)).properties == done.stream.properties


def test_a_snapshot_of_another_revision_does_not_count(run, place):
    run(act(place, pay(5), snapshot=Snapshot(Till)))

    found = run(look(place, snapshot=Snapshot(Till, revision=2)))
    again = run(act(place, pay(5), snapshot=Snapshot(Till, revision=2)))

    assert found.state == Till(balance=5, events=1)
    assert (again.stream.properties["SnapshotRevision"], again.stream.properties["SnapshotVersion"]) == (2, 2)


def test_a_state_too_large_for_the_header_is_not_kept(run, place):
    class Long(BaseModel, frozen=True):
        text: str = ""

    def grow(state, event):
        return Long(text=state.text + "x" * event.amount)

    snapshot = Snapshot(Long)
    for _ in range(2):
        last = run(
            decide(
                place, lambda _: [Paid(amount=40_000)], grow, initial=Long(), codec=CODEC, snapshot=snapshot
            )
        )

    assert last.stream.properties["SnapshotVersion"] == 1
    found = run(fold(place, Long(), grow, codec=CODEC, snapshot=snapshot))
    assert len(found.state.text) == 80_000


def test_events_that_a_state_needs_and_that_were_cut_away_are_an_error(run, place):
    run(act(place, pay(1, 2, 3)))
    run(Stream.truncate(run(Stream.open(place)), 2))

    for options in ({}, {"snapshot": Snapshot(Till)}):
        with pytest.raises(StreamTruncatedError, match="Event 1 "):
            run(look(place, **options))
