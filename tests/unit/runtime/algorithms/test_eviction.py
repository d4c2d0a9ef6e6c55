"""Ids that are kept by age are forgotten by age: what they protected against can happen then."""

from datetime import timedelta

import pytest

from eventstore import drive
from tests.unit.runtime import diary
from tests.unit.runtime.algorithms.batches import Batch
from tests.unit.runtime.algorithms.world import ALGORITHMS, CrashError, World, crash
from tests.unit.runtime.diary import write
from tests.unit.runtime.tables import contents, rows
from tests.unit.runtime.worker import DAY, ends

WEEK = timedelta(days=7)
BY_AGE = ["outbox", "deduplication-store"]


def evict(world: World, older_than: timedelta = WEEK) -> int:
    return drive(world.worker().evict(older_than))


@pytest.mark.parametrize("algorithm", BY_AGE)
def test_a_duplicate_that_comes_after_its_eviction_is_processed_again(algorithm):
    # Given a message that was processed a week ago, and is forgotten
    world = World(algorithm, diary.app)
    world.deliver(write("a"))
    world.clock.now += 7 * DAY
    assert evict(world) == 1

    # When its copy comes
    outcomes = world.deliver(write("a"))

    # Then it has its effect twice: this is what a longer period makes less likely, and no period excludes
    assert ends(outcomes) == ["processed"]
    assert world.state("Diary", diary.DIARY)["lines"] == ["a", "a"]


@pytest.mark.parametrize("algorithm", BY_AGE)
def test_younger_messages_are_kept(algorithm):
    world = World(algorithm, diary.app)
    world.deliver(write("old"))
    world.clock.now += 7 * DAY
    world.deliver(write("young"))

    assert evict(world) == 1
    assert ends(world.deliver(write("young"), write("old"))) == ["duplicate", "processed"]


@pytest.mark.parametrize("algorithm", BY_AGE)
def test_what_is_not_published_yet_is_kept_however_old_it_is(algorithm):
    world = World(algorithm, diary.app)
    with pytest.raises(CrashError):
        drive(world.process(write("a"), before=lambda call: crash() if call == "publish" else None))
    world.clock.now += 7 * DAY

    assert evict(world) == 0
    assert ends(world.deliver(write("a"))) == ["duplicate"]
    assert len(world.published) == 1


@pytest.mark.parametrize("algorithm", BY_AGE)
def test_what_a_batch_has_not_published_yet_is_kept_however_old_it_is(algorithm):
    batch = Batch(World(algorithm, diary.app))
    batch.first_pass(write("a"))
    batch.world.clock.now += 7 * DAY

    assert evict(batch.world, timedelta()) == 0
    assert ends(batch.run(write("a"))) == ["processed"]
    assert len(batch.outcomes[0].outputs) == 1


@pytest.mark.parametrize("algorithm", BY_AGE)
def test_a_dry_run_counts_and_writes_nothing(algorithm):
    world = World(algorithm, diary.app)
    world.deliver(write("a"), write("b"))
    before = contents(world.states), contents(world.other)

    assert drive(world.worker().evict(timedelta(), dry_run=True)) == 2
    assert (contents(world.states), contents(world.other)) == before


@pytest.mark.parametrize("algorithm", [each for each in ALGORITHMS if each not in BY_AGE])
def test_what_is_not_kept_by_age_is_not_forgotten(algorithm):
    world = World(algorithm, diary.app)
    world.deliver(write("a"))
    world.clock.now += 7 * DAY

    assert evict(world) == 0
    assert ends(world.deliver(write("a"))) == ["duplicate"]


def test_a_store_forgets_more_messages_than_a_transaction_takes():
    world = World("deduplication-store", diary.app)
    for number in range(130):
        world.deliver(write("a", f"m-{number}"))

    assert evict(world, timedelta()) == 130
    assert rows(world.other) == {}


def test_two_that_evict_at_once_do_not_disturb_each_other():
    world = World("deduplication-store", diary.app)
    world.deliver(write("a"), write("b"))

    def other(call: str):
        return world.worker().evict(timedelta()) if call == "other transact" else None

    assert drive(world.worker(before=other).evict(timedelta())) == 0
    assert rows(world.other) == {}
