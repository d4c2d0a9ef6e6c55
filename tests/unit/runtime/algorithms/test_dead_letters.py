"""A message that must not be handled is a dead letter with its reason, whatever the algorithm. No state changes."""

import pytest

from eventstore import drive
from runtime import StoredDataError, UsageError
from runtime.algorithms.outbox.entity import MAX_OUTBOX_BYTES
from runtime.versions.limits import MAX_STATE_BYTES
from tests.unit.runtime import diary
from tests.unit.runtime.algorithms.world import ALGORITHMS, WITH_OUTBOX, CrashError, World, crash
from tests.unit.runtime.diary import DIARY, misbehave, write
from tests.unit.runtime.tables import contents
from tests.unit.runtime.worker import ends

BAD = {
    "a handler that fails": (misbehave("fail", "m"), "handler_error"),
    "a handler that changes its input": (misbehave("set an attribute", "m"), "handler_error"),
    "a state too large": (write("x" * MAX_STATE_BYTES, "m"), "state_too_large"),
    "a key too long": (write("x", "m", "d" * 600), "key_too_long"),
    "a body that is none": (write("x", "m")._replace(body="{"), "invalid_body"),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("bad", BAD)
def test_a_dead_letter_has_its_reason_and_changes_no_state_and_its_copies_give_the_same(algorithm, bad):
    message, reason = BAD[bad]
    world = World(algorithm, diary.app)
    world.deliver(write("first"))

    (outcome,) = world.deliver(message)

    assert ends([outcome]) == [reason]
    assert outcome.error
    assert world.state("Diary", DIARY)["lines"] == ["first"]
    kept = contents(world.states)
    assert world.deliver(message) == [outcome]
    assert contents(world.states) == kept
    assert ends(world.deliver(write("next"))) == ["processed"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_another_message_with_a_known_id_is_told_from_a_duplicate(algorithm):
    # With tokens, one that comes after the first was processed has no token left: it is a duplicate of it.
    expected = "duplicate" if algorithm == "tokens" else "id_reused"
    world = World(algorithm, diary.app)
    world.deliver(write("a", "m"))

    outcomes = world.deliver(write("b", "m"))

    assert ends(outcomes) == [expected]
    assert world.state("Diary", DIARY)["lines"] == ["a"]


@pytest.mark.parametrize("algorithm", WITH_OUTBOX)
def test_another_message_with_the_id_of_one_that_is_not_finished_is_told_from_it_too(algorithm):
    world = World(algorithm, diary.app)
    with pytest.raises(CrashError):
        drive(world.process(write("a", "m"), before=lambda call: crash() if call == "publish" else None))

    outcomes = world.deliver(write("b", "m"))

    assert ends(outcomes) == ["id_reused"]
    assert world.published == []


def full_outbox(algorithm) -> World:
    """Return a world with an entity whose outbox has unpublished outputs of many messages."""
    world = World(algorithm, diary.app)
    for number in range(MAX_OUTBOX_BYTES // 100_000):
        message = write(str(number) * 50_000, f"m-{number}")
        with pytest.raises(CrashError):
            drive(world.process(message, before=lambda call: crash() if call == "publish" else None))
        world.deliver(misbehave("burn the diary", f"burn-{number}"))
    return world


@pytest.mark.parametrize("algorithm", WITH_OUTBOX)
def test_an_entry_that_does_not_fit_is_a_dead_letter_until_others_are_finished(algorithm):
    world = full_outbox(algorithm)
    assert ends(world.deliver(write("x" * 50_000, "large"))) == ["state_too_large"]

    drive(world.worker().sweep())

    assert ends(world.deliver(write("x" * 50_000, "large"))) == ["state_too_large"]
    assert ends(world.redrive(write("x" * 50_000, "large"))) == ["processed"]


def test_a_message_without_a_token_is_a_dead_letter_that_says_what_to_do():
    world = World("tokens", diary.app)

    (outcome,) = drive(world.worker().process(write("a")))

    assert ends([outcome]) == ["invalid_envelope"]
    assert outcome.error == (
        "It carries no token: issue one before it is sent (`consistent tokens issue`, `Processor.issue`)."
    )


@pytest.mark.parametrize("algorithm", WITH_OUTBOX)
def test_a_table_of_another_algorithm_is_refused_with_a_sentence(algorithm):
    world = World(algorithm, diary.app)
    world.deliver(write("a"))
    other = World("outbox" if algorithm != "outbox" else "tokens", diary.app, states=world.states)

    with pytest.raises(UsageError, match=f"Diary-d-1 is processed with the algorithm {algorithm}"):
        other.deliver(write("b"))


@pytest.mark.parametrize("damage", [b"", b"\xc1", b"\x92\x09\x90", b"\x92\x01\x91\x91\x01"])
def test_an_outbox_that_cannot_be_read_is_told(damage):
    from eventstore import Operation

    world = World("outbox", diary.app)
    world.deliver(write("a"))
    drive(world.states.transact("Diary-d-1", [Operation.merge("ENTITY", {"Outbox": damage})]))

    with pytest.raises(StoredDataError, match="The outbox of an entity"):
        world.deliver(write("b"))
