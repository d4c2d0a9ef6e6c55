"""`processed` and `duplicate` are told relative to the batch that added a version, and to its first delivery there."""

from runtime.ledger.batch import BatchContext
from tests.unit.runtime.diary import misbehave, ponder, write
from tests.unit.runtime.tables import contents, memory_table
from tests.unit.runtime.worker import Worker, ends


def test_a_batch_that_is_run_again_gives_the_same_statuses_and_outputs():
    # A task that is tried again must not turn what its batch processed into duplicates.
    table = memory_table()
    deliveries = [write("a"), write("a"), ponder("p"), write("b"), misbehave("fail"), write("a")]
    first = Worker(table, batch="batch-1").process(*deliveries)
    before = contents(table)

    again = Worker(table, batch="batch-1").process(*deliveries)

    assert ends(first) == ["processed", "duplicate", "processed", "processed", "handler_error", "duplicate"]
    assert again == first
    assert contents(table) == before


def test_a_message_that_another_batch_processed_is_a_duplicate():
    table = memory_table()
    first = Worker(table, batch="batch-1").process(write("a"), write("b"))

    again = Worker(table, batch="batch-2").process(write("b"), write("c"), write("a"))

    assert ends(again) == ["duplicate", "processed", "duplicate"]
    assert [again[2].outputs, again[0].outputs] == [outcome.outputs for outcome in first]


def test_a_message_without_a_batch_is_a_duplicate_when_it_comes_again():
    table = memory_table()
    Worker(table).process(write("a"))

    assert ends(Worker(table).process(write("a"))) == ["duplicate"]


def test_only_the_first_delivery_in_a_batch_has_outputs():
    outcomes = Worker(memory_table(), batch="batch-1").process(write("a"), write("a"), write("a"))

    assert ends(outcomes) == ["processed", "duplicate", "duplicate"]
    assert [len(outcome.outputs) for outcome in outcomes] == [1, 0, 0]
    assert [outcome.version for outcome in outcomes] == [1, 1, 1]


def test_only_the_first_delivery_of_a_known_message_in_a_batch_has_outputs():
    table = memory_table()
    Worker(table, batch="batch-1").process(write("a"))

    outcomes = Worker(table, batch="batch-2").process(write("a"), write("b"), write("a"))

    assert ends(outcomes) == ["duplicate", "processed", "duplicate"]
    assert [len(outcome.outputs) for outcome in outcomes] == [1, 1, 0]


def test_copies_of_a_message_that_was_refused_are_refused_too():
    outcomes = Worker(memory_table()).process(
        write("b", message_id="m-1", enqueued_at=2**60),
        write("b", message_id="m-1"),
        write("b", message_id="m-1"),
    )

    assert ends(outcomes) == ["enqueued_in_future"] * 3
    assert [len(outcome.outputs) for outcome in outcomes] == [0, 0, 0]


def test_a_batch_of_duplicates_alone_stores_nothing():
    table = memory_table()
    Worker(table, batch="batch-1").process(write("a"), ponder("p"))
    before = contents(table)

    outcomes = Worker(table, batch="batch-2").process(ponder("p"), write("a"), write("a"))

    assert ends(outcomes) == ["duplicate"] * 3
    assert contents(table) == before


def test_a_context_without_settings_processes_one_message_at_a_time():
    assert BatchContext() == BatchContext(
        None, open_batches=None, is_cascade=False, late="refuse", on_error="continue", number=None
    )
