"""A message that is not newer than the horizon cannot be told from a duplicate: it is too late, and stores nothing."""

import pytest

from eventstore import Table, drive
from runtime.algorithms.state_based.truncation import TruncationRules, truncate_stream
from runtime.ledger.batch import BatchContext, OpenBatches
from tests.unit.runtime.diary import DIARY, ponder, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import contents, memory_table
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker, ends, made_by, outputs

HORIZON = NOW - 10 * DAY
LATE = BatchContext("batch-1", late="process")


def truncated_table(*, undated: bool = False) -> Table:
    """Return a table with a stream of which the message "cut" was cut away, and "kept" is kept."""
    table = memory_table()
    worker = Worker(table, clock=ToldClock(HORIZON))
    worker.process(write("cut", enqueued_at=None if undated else HORIZON))
    worker.process(write("kept", enqueued_at=HORIZON - DAY))
    rules = TruncationRules.of(NOW, OpenBatches(), older_than=DAY, acknowledged_after=0, allow_undated=True)
    truncated = drive(truncate_stream(table, f"Diary-{DIARY}", rules, PATIENCE))
    assert truncated is not None
    assert truncated.versions == 1
    return table


@pytest.mark.parametrize("enqueued_at", [HORIZON, HORIZON - 1, HORIZON - 99 * DAY])
def test_an_unknown_message_that_is_not_newer_than_the_horizon_is_too_late(enqueued_at):
    table = truncated_table()
    before = contents(table)

    (outcome,) = Worker(table).process(write("a", enqueued_at=enqueued_at))

    assert ends([outcome]) == ["too_late"]
    assert (outcome.version, outcome.outputs, outcome.reason) == (None, (), None)
    assert contents(table) == before


def test_the_message_that_was_cut_is_not_processed_again():
    table = truncated_table()

    (outcome,) = Worker(table).process(write("cut", enqueued_at=HORIZON))

    assert ends([outcome]) == ["too_late"]
    assert made_by(table) == ["kept"]


def test_a_message_that_is_newer_than_the_horizon_is_processed():
    (outcome,) = Worker(truncated_table()).process(write("a", enqueued_at=HORIZON + 1))

    assert ends([outcome]) == ["processed"]
    assert outcome.version == 3


def test_a_known_message_is_replayed_although_it_is_older_than_the_horizon():
    (outcome,) = Worker(truncated_table()).process(write("kept", enqueued_at=HORIZON - DAY))

    assert ends([outcome]) == ["duplicate"]
    assert len(outcome.outputs) == 1


def test_a_message_without_a_time_is_processed_where_none_without_a_time_was_cut():
    assert ends(Worker(truncated_table()).process(write("a"))) == ["processed"]


def test_a_message_without_a_time_is_too_late_where_one_without_a_time_was_cut():
    table = truncated_table(undated=True)

    assert ends(Worker(table).process(write("a"), write("cut"), ponder("p"))) == ["too_late"] * 3
    assert made_by(table) == ["kept"]


def test_a_message_with_a_time_is_processed_where_only_ones_without_a_time_were_cut():
    assert ends(Worker(truncated_table(undated=True)).process(write("a", enqueued_at=1))) == ["processed"]


def test_a_late_message_is_processed_when_that_is_asked_for():
    table = truncated_table()

    outcomes = Worker(table, batch=LATE).process(write("a", enqueued_at=HORIZON), write("kept"))

    assert ends(outcomes) == ["processed", "duplicate"]
    assert made_by(table) == ["kept", "a"]


def test_a_late_message_costs_no_other_message_its_outcome():
    table = truncated_table()

    outcomes = Worker(table).process(
        write("a", enqueued_at=HORIZON), write("b", enqueued_at=NOW), write("kept")
    )

    assert ends(outcomes) == ["too_late", "processed", "duplicate"]
    assert len(outputs(outcomes)) == 2
