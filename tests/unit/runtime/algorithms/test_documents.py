"""Documents: seen by nobody before the commit, as announced for ever after, and none that were not committed."""

from datetime import timedelta
from typing import Any

import pytest

from eventstore import drive
from runtime import Outcome, Status
from runtime.algorithms.documents.draft import DOCUMENT
from runtime.algorithms.documents.effects import MAX_BYTES, Effect, TableEffects
from runtime.algorithms.documents.prepare_commit_publish import PrepareCommitPublish
from runtime.algorithms.outbox.entities import ENTITY
from runtime.messages.deliveries import Prepared
from runtime.messages.parsing import prepare
from tests.unit.runtime import diary
from tests.unit.runtime.algorithms.documents import DocumentWorld
from tests.unit.runtime.algorithms.game import SHOT, WITH_DOCUMENTS, assert_one_hit, begun, calls, shoot
from tests.unit.runtime.algorithms.world import At, CrashError, Pause, crash, lose_answer, resume
from tests.unit.runtime.diary import SKY, misbehave, ponder
from tests.unit.runtime.games import start
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import ToldClock, ends

EFFECT = Effect("Diary-d-1", "attempt1", 0)


def game() -> DocumentWorld:
    world = begun(WITH_DOCUMENTS)
    assert isinstance(world, DocumentWorld)
    return world


def writing(render, states=None, effects=None) -> tuple[PrepareCommitPublish, list[str]]:
    """Return an algorithm for diaries that writes documents, and what it will have published."""
    published: list[str] = []

    async def publish(output) -> None:
        published.append(output.headers.get(DOCUMENT, "none"))

    return PrepareCommitPublish(
        states or memory_table(),
        effects or TableEffects(memory_table()),
        diary.app.handlers["Diary"],
        render,
        publish,
        clock=ToldClock(),
        retries=PATIENCE,
    ), published


def prepared(message) -> Prepared:
    ready = prepare(diary.app.handlers["Diary"], "d-1", message)
    assert isinstance(ready, Prepared)
    return ready


def process(algorithm: PrepareCommitPublish, message) -> Outcome:
    return drive(algorithm.process(prepared(message)))


def test_an_effect_can_be_read_from_when_it_is_published():
    effects = TableEffects(memory_table())

    drive(effects.prepare(EFFECT, b"text"))
    hidden = drive(effects.read(EFFECT.name))
    drive(effects.publish(EFFECT.name))
    drive(effects.publish(EFFECT.name))

    assert (hidden, drive(effects.read(EFFECT.name))) == (None, b"text")


def test_a_published_effect_is_neither_deleted_nor_written_again():
    effects = TableEffects(memory_table())
    drive(effects.prepare(EFFECT, b"text"))
    drive(effects.publish(EFFECT.name))

    drive(effects.delete(EFFECT))
    drive(effects.prepare(EFFECT, b"other"))

    assert drive(effects.read(EFFECT.name)) == b"text"


def test_an_effect_that_is_published_while_it_is_deleted_stays():
    world = game()
    drive(world.effects.prepare(EFFECT, b"text"))
    publish = At(2, lambda: world.effects.publish(EFFECT.name))

    drive(TableEffects(world.watched("other", world.other, publish, None)).delete(EFFECT))

    assert drive(world.effects.read(EFFECT.name)) == b"text"


def test_nothing_is_visible_before_the_commit():
    for number in range(1, len(calls(WITH_DOCUMENTS)) + 1):
        world = game()
        before = world.state("ShootingRange", SHOT.body[13:49])  # type: ignore[arg-type]
        with pytest.raises(CrashError):
            shoot(world, before=At(number, crash))
        if world.state("ShootingRange", SHOT.body[13:49]) == before:  # type: ignore[arg-type]
            assert not any(row["Published"] for row in rows(world.other).values())


def test_a_document_is_visible_when_its_message_goes_out():
    world = game()
    seen: list[bytes | None] = []

    async def look(call: str) -> None:
        if call == "published":
            seen.append(await world.effects.read(world.published[0].headers[DOCUMENT]))

    drive(world.process(SHOT, after=look))

    assert seen == [b"Hit, copy 1"]


def test_workers_that_live_leave_nothing_for_the_sweeper():
    # Two copies, of which the slower prepares its document when the faster one has cleaned up.
    count = len(calls(WITH_DOCUMENTS)) + 1
    for number in range(1, count):
        world = game()
        slow = world.process(SHOT, before=At(number, Pause))
        assert resume(slow)
        world.deliver(SHOT)
        assert not resume(slow)
        assert world.unpublished() == []
        world.consume()
        assert_one_hit(world)


def test_a_new_message_costs_a_request_to_register_and_two_for_its_document():
    world = game()

    world.deliver(SHOT)
    new = [call for call in world.calls if not call.endswith("barrier")]
    world.deliver(SHOT)
    again = [call for call in world.calls if not call.endswith("barrier")]

    assert new == [
        "states get",
        "states transact",
        "other transact",
        "states transact",
        "other transact",
        "publish",
        "states transact",
    ]
    assert again == ["states get"]


def test_a_message_without_documents_costs_what_it_costs_with_an_outbox():
    world = game()

    world.deliver(start(2, 2))

    assert [call for call in world.calls if not call.endswith("barrier")] == ["states get", "states transact"]


def test_a_document_too_large_is_a_dead_letter():
    algorithm, published = writing(lambda output: b"x" * (MAX_BYTES + 1))

    outcome = process(algorithm, ponder("p"))

    assert ends([outcome]) == ["state_too_large"]
    assert published == []


def test_the_largest_document_is_stored():
    algorithm, published = writing(lambda output: b"x" * MAX_BYTES)

    process(algorithm, ponder("p"))

    assert isinstance(algorithm.effects, TableEffects)
    assert len(drive(algorithm.effects.read(published[0])) or b"") == MAX_BYTES


def test_what_fails_to_write_a_document_makes_a_dead_letter_and_changes_no_state():
    states = memory_table()

    def fail(output) -> bytes:
        raise KeyError("no ink")

    algorithm, _ = writing(fail, states)

    outcome = process(algorithm, ponder("p"))

    assert (ends([outcome]), outcome.error) == (["handler_error"], "KeyError: 'no ink'")
    assert [properties["Version"] for (_, key), properties in rows(states).items() if key == ENTITY] == [0]


def test_an_output_without_a_document_goes_out_as_it_is():
    algorithm, published = writing(lambda output: None)

    assert process(algorithm, ponder("p")).status is Status.PROCESSED
    assert published == ["none"]


def test_a_dead_letter_after_a_lost_race_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch):
    # Given an attempt that has prepared its document, and whose commit is not answered
    states, other = memory_table(), memory_table()
    world = DocumentWorld(diary.app)
    worker = world.watched("states", states, At(3, lose_answer_in_the_dark(monkeypatch)), None)
    algorithm, published = writing(lambda output: b"text", worker, TableEffects(other))

    # When the handler fails in the second one
    outcome = process(algorithm, misbehave("fail under a dark sky"))

    # Then nothing is visible, or left
    assert ends([outcome]) == ["handler_error"]
    assert published == []
    assert rows(other) == {}


def test_a_dead_letter_is_not_one_when_the_commit_was_only_not_answered(monkeypatch: pytest.MonkeyPatch):
    states, other = memory_table(), memory_table()
    world = DocumentWorld(diary.app)
    worker = world.watched("states", states, None, At(3, lose_answer_in_the_dark(monkeypatch)))
    algorithm, published = writing(lambda output: b"text", worker, TableEffects(other))

    outcome = process(algorithm, misbehave("fail under a dark sky"))

    assert ends([outcome]) == ["duplicate"]
    assert [drive(TableEffects(other).read(name)) for name in published] == [b"text"]


def test_no_error_makes_a_worker_delete_what_its_late_write_may_still_commit(monkeypatch: pytest.MonkeyPatch):
    # Given an attempt whose commit is not answered, and takes effect while the worker looks again
    states, other = memory_table(), memory_table()
    world = DocumentWorld(diary.app)
    late: list[Any] = []

    class LateTable:
        def __getattr__(self, name: str):
            return getattr(states, name)

        async def transact(self, partition_key, operations):
            if len(late) == 1:
                late.append((partition_key, operations))
                lose_answer_in_the_dark(monkeypatch)()
            late.append(None)
            return await states.transact(partition_key, operations)

    algorithm, published = writing(lambda output: b"text", LateTable(), TableEffects(other))
    outcome = process(algorithm, misbehave("fail under a dark sky"))

    # When the write comes after all is over
    partition_key, operations = late[1]
    with pytest.raises(Exception, match="has been changed since it was read"):
        drive(states.transact(partition_key, operations))

    # Then it is refused, and what it would have announced is gone
    assert ends([outcome]) == ["handler_error"]
    assert (published, rows(other)) == ([], {})
    assert world.published == []


def test_ids_are_forgotten_by_age_as_in_the_outbox():
    algorithm, published = writing(lambda output: b"text")
    process(algorithm, ponder("p"))

    assert drive(algorithm.evict(timedelta())) == 1
    assert process(algorithm, ponder("p")).status is Status.PROCESSED
    assert len(set(published)) == 2


def lose_answer_in_the_dark(monkeypatch: pytest.MonkeyPatch):
    """Return what loses an answer, and lets the handler fail from then on."""

    def lose() -> None:
        monkeypatch.setitem(SKY, "colour", "black")
        lose_answer()

    return lose


def crashed_after_preparing() -> DocumentWorld:
    world = game()
    with pytest.raises(CrashError):
        shoot(world, after=At(calls(WITH_DOCUMENTS).index("other transact") + 1, crash))
    assert len(world.unpublished()) == 1
    return world


def test_the_next_copy_deletes_what_an_attempt_that_died_has_prepared():
    world = crashed_after_preparing()

    world.deliver(SHOT)

    assert world.unpublished() == []
    world.consume()
    assert_one_hit(world)


def test_another_message_deletes_what_an_attempt_that_died_has_prepared():
    world = crashed_after_preparing()

    world.deliver(start(2, 2))

    assert world.unpublished() == []


def test_a_sweep_deletes_what_an_attempt_that_died_has_prepared():
    world = crashed_after_preparing()

    drive(world.worker().sweep())

    assert world.unpublished() == []
    assert world.published == []


def test_a_sweep_leaves_alone_what_was_registered_a_moment_ago():
    world = crashed_after_preparing()

    drive(world.worker().sweep(timedelta(seconds=1)))

    assert len(world.unpublished()) == 1


def test_a_sweep_deletes_what_was_prepared_when_others_had_cleaned_up_already():
    # Given a worker that dies of its last call, which is to prepare a document
    world = game()
    number = calls(WITH_DOCUMENTS).index("other transact") + 1
    slow = world.process(SHOT, before=At(number, Pause), after=At(number, crash))
    assert resume(slow)
    world.deliver(SHOT)
    with pytest.raises(CrashError):
        resume(slow)
    assert len(world.unpublished()) == 1

    drive(world.worker().sweep())

    assert world.unpublished() == []
    world.consume()
    assert_one_hit(world)
