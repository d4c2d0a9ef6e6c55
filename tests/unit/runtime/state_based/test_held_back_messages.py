"""With `stop-stream`, new messages after a dead letter wait; known ones do not."""

from eventstore import drive
from runtime.ledger.batch import BatchContext, Seen
from runtime.messages.parsing import prepare
from tests.unit.runtime.diary import DIARY, delivery, misbehave, write
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import Worker, ends, made_by, outputs

STOP = BatchContext("batch-1", on_error="stop-stream")


def test_new_messages_after_a_dead_letter_are_held_back():
    table = memory_table()

    outcomes = Worker(table, batch=STOP).process(write("a"), misbehave("fail"), write("b"), write("c"))

    assert ends(outcomes) == ["processed", "handler_error", "held_back", "held_back"]
    assert made_by(table) == ["a"]


def test_a_delivery_that_could_not_even_be_read_holds_them_back_too():
    outcomes = Worker(memory_table(), batch=STOP).process(
        delivery("m", "Write", {"diary": DIARY}), write("b")
    )

    assert ends(outcomes) == ["invalid_body", "held_back"]


def test_known_messages_are_replayed_all_the_same():
    table = memory_table()
    first = Worker(table, batch="batch-0").process(write("a"), write("b"))

    outcomes = Worker(table, batch=STOP).process(misbehave("fail"), write("a"), write("c"), write("b"))

    assert ends(outcomes) == ["handler_error", "duplicate", "held_back", "duplicate"]
    assert outputs(outcomes) == outputs(first)


def test_a_copy_of_a_message_before_the_dead_letter_is_a_duplicate():
    outcomes = Worker(memory_table(), batch=STOP).process(write("a"), misbehave("fail"), write("a"))

    assert ends(outcomes) == ["processed", "handler_error", "duplicate"]


def test_what_was_held_back_is_a_letter_and_later_messages_are_handled():
    table = memory_table()
    Worker(table, batch=STOP).process(misbehave("fail"), write("a"))

    assert ends(Worker(table, batch="batch-2").process(write("a"), write("b"))) == ["held_back", "processed"]
    assert ends(Worker(table, batch=BatchContext("batch-3", is_redrive=True)).process(write("a"))) == [
        "processed"
    ]


def test_a_stream_that_was_stopped_before_stays_stopped():
    worker = Worker(memory_table(), batch=STOP)
    deliveries = [prepare(worker.handler, DIARY, write("a"))]

    outcomes = drive(worker.algorithm.process(DIARY, deliveries, Seen(dead_letter=True)))

    assert ends(outcomes) == ["held_back"]


def test_without_the_option_nothing_is_held_back():
    outcomes = Worker(memory_table(), batch="batch-1").process(misbehave("fail"), write("a"))

    assert ends(outcomes) == ["handler_error", "processed"]
