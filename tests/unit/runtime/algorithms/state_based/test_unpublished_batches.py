"""A stored version whose outputs were never published, and cannot be produced again, fails the batch loudly."""

import pytest

from handlers import App, Context, Handler, Message, State, handles
from runtime.errors import ReplayFailedError
from runtime.ledger.batch import BatchContext
from tests.unit.runtime.diary import SKY, delivery, misbehave, write
from tests.unit.runtime.tables import contents, memory_table
from tests.unit.runtime.worker import Worker, ends, made_by, open_batches

UNPUBLISHED = BatchContext("batch-2", open_batches("batch-1", "batch-2"))
PUBLISHED = BatchContext("batch-2", open_batches("batch-2"))

DARK = misbehave("fail under a dark sky")
OUTSIDE = misbehave("draw from outside")
REMEMBERED = misbehave("remember what is outside")


@pytest.fixture
def black_sky_later(monkeypatch: pytest.MonkeyPatch):
    return lambda: monkeypatch.setitem(SKY, "colour", "black")


@pytest.mark.parametrize(
    ("bad", "reason", "problem"),
    [
        (DARK, "replay_failed", "ValueError: too dark"),
        (OUTSIDE, "nondeterministic", "version 2 .* outputs"),
        (REMEMBERED, "nondeterministic", "version 2 .* next state"),
    ],
)
class TestWhatCannotBeReplayed:
    def test_fails_the_batch_when_its_outputs_are_not_out(self, bad, reason, problem, black_sky_later):
        table = memory_table()
        Worker(table, batch="batch-1").process(write("a"), bad, write("b"))
        black_sky_later()
        before = contents(table)

        with pytest.raises(ReplayFailedError, match=problem) as failed:
            Worker(table, batch=UNPUBLISHED).process(write("a"), bad, write("b"))

        assert "Message bad made version 2 of Diary-d-1 in batch batch-1" in str(failed.value)
        assert "abandon" in str(failed.value)
        assert contents(table) == before

    def test_fails_its_own_batch_when_that_is_resumed(self, bad, reason, problem, black_sky_later):
        table = memory_table()
        Worker(table, batch="batch-2").process(write("a"), bad)
        black_sky_later()

        with pytest.raises(ReplayFailedError, match=problem):
            Worker(table, batch=PUBLISHED).process(bad)

    def test_is_a_dead_letter_when_its_outputs_are_out(self, bad, reason, problem, black_sky_later):
        table = memory_table()
        Worker(table, batch="batch-1").process(write("a"), bad, write("b"))
        black_sky_later()
        before = contents(table)

        outcomes = Worker(table, batch=PUBLISHED).process(write("a"), bad, write("b"), write("c"))

        assert ends(outcomes) == ["duplicate", reason, "duplicate", "processed"]
        assert outcomes[1].outputs == ()
        assert contents(table) != before
        assert made_by(table)[-1] == "c"

    def test_is_a_dead_letter_when_no_batch_made_it(self, bad, reason, problem, black_sky_later):
        table = memory_table()
        Worker(table).process(write("a"), bad)
        black_sky_later()

        assert ends(Worker(table, batch=UNPUBLISHED).process(bad)) == [reason]


def test_a_copy_in_the_batch_that_has_the_outputs_in_hand_does_not_fail_it():
    outcomes = Worker(memory_table(), batch=PUBLISHED).process(OUTSIDE, OUTSIDE, write("a"))

    assert ends(outcomes) == ["processed", "nondeterministic", "processed"]
    assert len(outcomes[0].outputs) == 1


class Rang(Message):
    tower: str


class Heard(Message):
    by: str


class Data(State):
    rings: int = 0


class Bell(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        context.publish(Heard(by="first"))
        return state.model_copy(update={"rings": state.rings + 1})


class RevisedBell(Handler[Data], name="Bell"):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        context.publish(Heard(by="first"))
        return state.model_copy(update={"rings": state.rings + 1})

    @handles(by="tower", revision=2)
    def rang_again(self, state: Data, message: Rang, context: Context) -> Data:
        context.publish(Heard(by="second"))
        return state.model_copy(update={"rings": state.rings + 10})


class ReplacedBell(Handler[Data], name="Bell"):
    @handles(by="tower", revision=2)
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        context.publish(Heard(by="second"))
        return state.model_copy(update={"rings": state.rings + 10})


def rang(message_id: str):
    return delivery(message_id, "Rang", {"tower": "east"})


def test_a_duplicate_is_handled_by_the_revision_that_handled_it_first():
    table = memory_table()
    (first,) = Worker(table, App(Bell), business_id="east").process(rang("m-1"))

    again, new = Worker(table, App(RevisedBell), business_id="east").process(rang("m-1"), rang("m-2"))
    (new_again,) = Worker(table, App(RevisedBell), business_id="east").process(rang("m-2"))

    assert ends([again, new, new_again]) == ["duplicate", "processed", "duplicate"]
    assert again.outputs == first.outputs
    assert new.outputs[0].body == '{"by":"second"}'
    assert new_again.outputs == new.outputs


def test_a_revision_that_is_no_longer_there_cannot_be_replayed():
    table = memory_table()
    Worker(table, App(Bell), business_id="east", batch="batch-1").process(rang("m-1"))

    (outcome,) = Worker(table, App(ReplacedBell), business_id="east", batch=PUBLISHED).process(rang("m-1"))
    assert ends([outcome]) == ["replay_failed"]
    assert outcome.error == "Revision 1 of Bell for Rang is no longer there."

    with pytest.raises(ReplayFailedError, match="Revision 1 of Bell for Rang is no longer there"):
        Worker(table, App(ReplacedBell), business_id="east", batch=UNPUBLISHED).process(rang("m-1"))
