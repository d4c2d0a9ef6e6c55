"""What a batch has left that has not ended is its own: others may publish it once more, and leave it as it is."""

import pytest

from eventstore import drive
from runtime import Outcome, Output
from runtime.ledger.batch import OpenBatches
from tests.unit.runtime.algorithms.batches import Batch
from tests.unit.runtime.algorithms.world import WITH_OUTBOX, At, CrashError, World, crash
from tests.unit.runtime.games import GAME, fire, start
from tests.unit.runtime.worker import HOUR, NOW

pytestmark = pytest.mark.parametrize("algorithm", WITH_OUTBOX)
MESSAGES = (start(1, 1), fire(1, 1), fire(2, 5))
LATER = NOW + HOUR


@pytest.fixture
def died(algorithm) -> Batch:
    """Leave a batch that died when all was stored and before anything was committed."""
    batch = Batch(World(algorithm), "died")
    batch.first_pass(*MESSAGES)
    return batch


def given(outcomes: list[Outcome]) -> list[tuple[str, list[str]]]:
    return [(str(each.status), [output.message_id for output in each.outputs]) for each in outcomes]


def pending(world: World) -> int:
    entity = world.entity("ShootingRange", str(GAME))
    return entity.pending if entity else 0


def outputs(outcomes: list[Outcome]) -> set[str]:
    return {output.message_id for each in outcomes for output in each.outputs}


def test_another_batch_gives_its_outputs_as_duplicates_and_the_first_gives_them_all_the_same(died):
    world = died.world
    other = Batch(world, "other").run(*MESSAGES)

    # The outputs were handled with the other batch, but the entries are left to the first
    assert {status for status, _ in given(other[:3])} == {"duplicate"}
    assert len(outputs(other)) == 2
    assert pending(world) == 3
    assert world.state("LeaderBoard", str(GAME)) == {"number_of_hits": 1, "number_of_misses": 1}

    first = died.run(*MESSAGES)
    assert given(first[:3]) == [("processed", ids) for _, ids in given(other[:3])]
    assert {status for status, _ in given(first[3:])} == {"duplicate"}
    assert world.garbage() == []
    assert world.state("LeaderBoard", str(GAME)) == {"number_of_hits": 1, "number_of_misses": 1}


def test_a_single_message_is_published_again_and_its_entry_left_to_the_batch(died):
    world = died.world

    (outcome,) = world.deliver(fire(1, 1))

    assert given([outcome]) == [("duplicate", [output.message_id for output in world.published])]
    assert len(world.published) == 1
    assert pending(world) == 3
    assert given(died.run(*MESSAGES)[:3])[1] == ("processed", [world.published[0].message_id])
    world.consume()
    assert world.garbage() == []
    assert world.state("LeaderBoard", str(GAME)) == {"number_of_hits": 1, "number_of_misses": 1}


def test_what_a_single_message_has_left_is_published_and_finished_by_a_batch(algorithm):
    world = World(algorithm)
    world.deliver(start(1, 1))
    with pytest.raises(CrashError):
        drive(world.process(fire(1, 1), before=lambda call: crash() if call == "publish" else None))

    outcomes = Batch(world).run(fire(1, 1))

    assert [status for status, _ in given(outcomes)] == ["duplicate", "processed"]
    assert len(outputs(outcomes)) == 1
    assert world.garbage() == []


def test_a_sweep_leaves_a_batch_alone_that_has_not_ended(died):
    sweep = Batch(died.world, "sweep", open_batches=OpenBatches(names=frozenset({"died"})))

    assert sweep.unfinished(LATER) == []
    assert drive(died.world.worker().sweep()) == 0
    assert died.world.garbage() != []


def test_a_sweep_publishes_what_a_batch_has_left_that_was_abandoned(died):
    # Given that the batch was given up, and its messages are not redelivered
    world = died.world
    sweep = Batch(world, "sweep", open_batches=OpenBatches())

    # When a sweep takes it up
    left = sweep.unfinished(NOW - 1)

    # Then it gives what the batch would have given, and handles it
    assert [each.status for each in left] == ["duplicate"] * 3
    assert [each.envelope.type for each in left] == ["StartNewRound", "FireAt", "FireAt"]
    sweep.commit(left)
    sweep.second_pass()
    found: list[Output] = list(sweep.outputs_for_handlers())
    assert len(found) == 2
    sweep.run(*(output.envelope() for output in found))
    assert world.garbage() == []
    assert world.state("LeaderBoard", str(GAME)) == {"number_of_hits": 1, "number_of_misses": 1}
    assert sweep.unfinished(LATER) == []


def test_a_sweep_makes_up_for_a_task_that_died_after_any_call(algorithm):
    number, ended = 0, False
    while not ended:
        # Given a task that has died once its messages were stored, and whose batch was given up
        number += 1
        died = Batch(World(algorithm), "died")
        try:
            died.first_pass(*MESSAGES, after=At(number, crash))
            ended = True
        except CrashError:
            if not pending(died.world):
                continue

        # When a sweep takes it up
        sweep = Batch(died.world, "sweep", open_batches=OpenBatches())
        sweep.commit(sweep.unfinished(NOW))
        sweep.second_pass()
        sweep.run(*(output.envelope() for output in sweep.outputs_for_handlers()))

        # Then nothing is left, and each output was handled
        assert sweep.world.garbage() == []
        assert sweep.world.state("LeaderBoard", str(GAME)) == {"number_of_hits": 1, "number_of_misses": 1}


def test_another_batch_finishes_what_a_batch_has_left_that_was_abandoned(died):
    world = died.world

    outcomes = Batch(world, "other", open_batches=OpenBatches()).run(*MESSAGES)

    assert given(outcomes[:3])[0] == ("duplicate", [])
    assert len(outputs(outcomes)) == 2
    assert world.garbage() == []
    assert world.state("LeaderBoard", str(GAME)) == {"number_of_hits": 1, "number_of_misses": 1}


def test_a_sweep_that_dies_before_its_commit_gives_the_same_again(died):
    sweep = Batch(died.world, "sweep", open_batches=OpenBatches())
    first = given(sweep.unfinished(LATER))

    assert given(sweep.unfinished(LATER)) == first
    assert len(first) == 3


def test_a_sweep_leaves_single_messages_alone_that_are_younger(algorithm):
    world = World(algorithm)
    world.deliver(start(1, 1))
    with pytest.raises(CrashError):
        drive(world.process(fire(1, 1), before=lambda call: crash() if call == "publish" else None))
    sweep = Batch(world, "sweep")

    assert sweep.unfinished(NOW - 1) == []
    assert len(sweep.unfinished(NOW)) == 1
