"""A task of a batch dies between any two calls, in the first pass or the second, and runs again as a whole."""

from contextlib import suppress

import pytest

from runtime import Outcome, RetriesExhaustedError
from tests.unit.runtime.algorithms.batches import Batch
from tests.unit.runtime.algorithms.world import WITH_OUTBOX, At, CrashError, World, crash
from tests.unit.runtime.games import GAME, fire, start

pytestmark = pytest.mark.parametrize("algorithm", WITH_OUTBOX)
MESSAGES = (start(1, 1), fire(1, 1), fire(1, 1), fire(2, 5))


def undisturbed(algorithm) -> Batch:
    batch = Batch(World(algorithm))
    batch.run(*MESSAGES)
    return batch


def calls_of(algorithm, passes) -> int:
    """Return how many calls the first or the second pass of the first round makes."""
    batch = Batch(World(algorithm))
    batch.commit(batch.first_pass(*MESSAGES))
    if passes == 2:
        batch.second_pass()
    return len(batch.world.calls)


def finish(batch: Batch) -> None:
    """Let a batch go on with the messages that its rounds have published."""
    batch.second_pass()
    batch.run(*(output.envelope() for output in batch.outputs_for_handlers()))


def test_a_first_pass_that_died_after_any_call_gives_what_an_undisturbed_one_gives(algorithm):
    expected = undisturbed(algorithm)
    assert [str(outcome.status) for outcome in expected.outcomes[:4]] == [
        "processed",
        "processed",
        "duplicate",
        "processed",
    ]
    for number in range(1, calls_of(algorithm, 1) + 1):
        batch = Batch(World(algorithm))
        with pytest.raises(CrashError):
            batch.first_pass(*MESSAGES, after=At(number, crash))

        batch.commit(batch.first_pass(*MESSAGES))
        finish(batch)

        assert_same(batch, expected)


def test_a_second_pass_that_died_after_any_call_leaves_nothing_when_it_is_done_again(algorithm):
    expected = undisturbed(algorithm)
    for number in range(1, calls_of(algorithm, 2) + 1):
        batch = Batch(World(algorithm))
        batch.commit(batch.first_pass(*MESSAGES))
        with pytest.raises(CrashError):
            batch.second_pass(after=At(number, crash))

        finish(batch)

        assert_same(batch, expected)


def test_a_slow_task_that_goes_on_when_all_is_done_leaves_nothing(algorithm):
    expected = undisturbed(algorithm)
    for number in range(1, calls_of(algorithm, 1) + 1):
        # Given a task that stands still before one of its calls, while another one is run in its place
        batch = Batch(World(algorithm))

        def overtake(batch: Batch = batch) -> None:
            batch.run(*MESSAGES)

        # When it goes on after the batch has ended
        with suppress(RetriesExhaustedError):
            batch.first_pass(*MESSAGES, before=At(number, overtake))

        # Then nothing of it is left
        assert_same(batch, expected)


def test_both_passes_in_one_would_lose_outputs(algorithm):
    # Given a task that finishes its messages before its outcomes are committed, and dies then
    batch = Batch(World(algorithm))
    batch.commit(batch.first_pass(*MESSAGES))
    batch.second_pass()

    # When it runs again
    batch.committed = [batch.first_pass(*MESSAGES)]

    # Then nothing is left to publish: that is why there are two
    assert not any(outcome.outputs for outcome in batch.outcomes)


def test_a_second_pass_that_is_done_again_writes_nothing(algorithm):
    batch = Batch(World(algorithm))
    batch.commit(batch.first_pass(*MESSAGES))
    batch.second_pass()
    batch.second_pass()
    assert batch.world.calls == ["states get"]


def assert_same(batch: Batch, expected: Batch) -> None:
    """Check that outcomes are those of an undisturbed batch but for the names of tokens, and that nothing is left.

    Another batch over the same messages gives nothing more.
    """
    again = Batch(batch.world, "again").run(*MESSAGES)
    assert {(str(outcome.status), outcome.outputs) for outcome in again} == {("duplicate", ())}
    assert [_shown(outcome) for outcome in batch.outcomes] == [
        _shown(outcome) for outcome in expected.outcomes
    ]
    assert batch.world.garbage() == []
    for handler in batch.world.app.handlers:
        assert batch.world.state(handler, str(GAME)) == expected.world.state(handler, str(GAME))


def _shown(outcome: Outcome) -> tuple[object, ...]:
    outputs = [(*output[:5], sorted(output.headers)) for output in outcome.outputs]
    envelope = outcome.envelope
    return (envelope.message_id, envelope.body, outcome.handler, outcome.status, outcome.version, outputs)
