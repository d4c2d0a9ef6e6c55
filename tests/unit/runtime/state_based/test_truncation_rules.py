"""Which versions may go: each rule alone keeps what it is there to keep."""

from typing import Any

import pytest

from eventstore import Table, drive
from runtime.algorithms.state_based.truncation import HeldBy, Truncated, TruncationRules, truncate_stream
from runtime.errors import UsageError
from runtime.ledger.batch import OpenBatches
from runtime.versions import limits
from tests.unit.runtime.diary import ponder, write
from tests.unit.runtime.indexes import check_index, index_of
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import contents, memory_table
from tests.unit.runtime.worker import DAY, HOUR, NOW, ToldClock, Worker, ends, made_by

KEY = "Diary-d-1"
OLD = NOW - 10 * DAY
"""When the versions of these tests were written and their messages enqueued, unless they say otherwise."""


def truncate(
    table: Table, *, dry_run: bool = False, running: tuple[str, ...] = ("running",), **rules: Any
) -> Truncated:
    """Truncate the stream as of `NOW`: what is older than a day may go, unless a test says otherwise."""
    made = TruncationRules.of(NOW, OpenBatches(names=frozenset(running)), **{"older_than": DAY, **rules})
    truncated = drive(truncate_stream(table, KEY, made, PATIENCE, dry_run=dry_run))
    assert truncated is not None
    return truncated


def add(table: Table, line: str, *, written_at: int = OLD, batch: str | None = "done", **fields: Any) -> None:
    """Add a run of one version."""
    worker = Worker(table, clock=ToldClock(written_at), batch=batch)
    assert ends(worker.process(write(line, **{"enqueued_at": OLD, **fields}))) == ["processed"]


def table_with(**second: Any) -> Table:
    """Return a table with a stream of four runs, the second of which is as a test says, and the rest may go."""
    table = memory_table()
    add(table, "a")
    add(table, "b", **second)
    add(table, "c", written_at=max(OLD, second.get("written_at", OLD)))
    add(table, "newest", written_at=NOW)
    return table


def test_everything_before_the_newest_run_goes_when_no_rule_keeps_it():
    table = table_with()

    truncated = truncate(table)

    assert truncated == Truncated(KEY, 3, 3, 4, 4, OLD, bytes=truncated.bytes)
    assert made_by(table) == ["newest"]


@pytest.mark.parametrize(
    ("second", "held"),
    [
        ({"batch": "running"}, HeldBy.OPEN_BATCH),
        ({"batch": None}, HeldBy.UNACKNOWLEDGED),
        ({"written_at": NOW - DAY}, None),
        ({"written_at": NOW - DAY - 1, "enqueued_at": NOW - DAY}, None),
        ({"enqueued_at": None}, HeldBy.UNDATED),
        ({"enqueued_at": None, "written_at": NOW - DAY}, None),
    ],
    ids=[
        "its batch is not published",
        "its message may not have been acknowledged",
        "it was written lately",
        "it was enqueued lately",
        "it has no time",
        "it has no time and was written lately",
    ],
)
def test_each_rule_alone_keeps_a_version_and_all_after_it(second, held):
    table = table_with(**second)

    truncated = truncate(table)

    assert made_by(table) == ["b", "c", "newest"]
    assert (truncated.versions, truncated.runs, truncated.kept_from) == (1, 1, 2)
    assert truncated.held == held


@pytest.mark.parametrize(
    ("second", "allowed"),
    [
        ({"batch": None}, {"acknowledged_after": 9 * DAY}),
        ({"batch": "running"}, {"running": ()}),
        ({"written_at": NOW - DAY - 1}, {}),
        ({"written_at": NOW - DAY - 1, "enqueued_at": NOW - DAY - 1}, {}),
        ({"enqueued_at": None}, {"allow_undated": True}),
        (
            {"written_at": NOW - HOUR, "enqueued_at": NOW - HOUR},
            {"older_than": HOUR - 1, "allow_young": True},
        ),
    ],
)
def test_and_lets_it_go_when_it_does_not_apply(second, allowed):
    table = table_with(**second)

    truncate(table, **allowed)

    assert made_by(table) == ["newest"]


def test_the_newest_run_is_kept_whatever_its_age():
    # It holds the newest state, or the state before it: nothing could be handled or replayed without it.
    table = memory_table()
    add(table, "a")
    Worker(table, clock=ToldClock(OLD), batch="done").process(
        write("b", enqueued_at=OLD), write("c", enqueued_at=OLD)
    )

    truncated = truncate(table)

    assert made_by(table) == ["b", "c"]
    assert truncated.kept_from == 2


def test_a_stream_of_one_run_is_left_as_it_is():
    table = memory_table()
    add(table, "a")
    before = contents(table)

    assert truncate(table) == Truncated(KEY, 0, 0, 1, 1, None)
    assert contents(table) == before


@pytest.mark.parametrize(
    ("keep_last", "kept"), [(0, "f"), (1, "f"), (2, "ef"), (3, "def"), (6, "abcdef"), (99, "abcdef")]
)
def test_so_many_last_versions_are_kept(keep_last, kept):
    table = memory_table()
    for line in "abcdef":
        add(table, line)

    truncate(table, older_than=None, keep_last=keep_last)

    assert made_by(table) == list(kept)


def test_a_run_goes_only_when_all_its_versions_may_go():
    table = memory_table()
    Worker(table, clock=ToldClock(OLD), batch="done").process(
        *(write(line, enqueued_at=OLD) for line in "abc")
    )
    add(table, "d")

    assert truncate(table, keep_last=2).versions == 0
    assert truncate(table, keep_last=1).versions == 3


def test_one_young_message_keeps_its_whole_run():
    table = memory_table()
    Worker(table, clock=ToldClock(NOW - DAY - 1), batch="done").process(
        write("a", enqueued_at=OLD), write("young", enqueued_at=NOW - DAY), write("c", enqueued_at=OLD)
    )
    add(table, "newest", written_at=NOW)

    assert truncate(table).versions == 0
    assert made_by(table) == ["a", "young", "c", "newest"]


def test_versions_are_a_day_old_at_least_also_where_only_a_number_is_kept():
    table = table_with(written_at=NOW - HOUR)

    truncate(table, older_than=None, keep_last=1)

    assert made_by(table) == ["b", "c", "newest"]


def test_younger_ones_go_where_only_a_number_is_kept_if_that_is_allowed():
    table = table_with(written_at=NOW - HOUR, enqueued_at=NOW - HOUR)

    truncate(table, older_than=None, keep_last=1, allow_young=True)

    assert made_by(table) == ["newest"]


def test_both_an_age_and_a_number_keep_what_either_keeps():
    table = table_with(written_at=NOW - 3 * DAY)

    assert truncate(table, older_than=5 * DAY, keep_last=1).versions == 1
    assert truncate(table, older_than=2 * DAY, keep_last=3).versions == 0
    assert truncate(table, older_than=2 * DAY, keep_last=1).versions == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "^Say what may be cut: --older-than AGE, --keep-last N, or both.$"),
        ({"older_than": DAY - 1}, "^Versions younger than 24h are kept"),
        ({"older_than": 0, "keep_last": 5}, "^Versions younger than 24h are kept"),
    ],
)
def test_rules_that_could_cut_too_much_are_refused(options, sentence):
    with pytest.raises(UsageError, match=sentence):
        TruncationRules.of(NOW, OpenBatches(), **options)


def test_a_dry_run_tells_what_would_go_and_writes_nothing():
    table = table_with()
    before = contents(table)

    told = truncate(table, dry_run=True)

    assert contents(table) == before
    assert told == truncate(table)


def test_a_stream_that_is_not_there_is_none():
    rules = TruncationRules.of(NOW, OpenBatches(), older_than=DAY, acknowledged_after=0)

    assert drive(truncate_stream(memory_table(), KEY, rules, PATIENCE)) is None


def test_truncating_again_changes_nothing():
    table = table_with()
    truncate(table)
    before = contents(table)

    assert truncate(table) == Truncated(KEY, 0, 0, 4, 4, OLD)
    assert contents(table) == before


def test_a_run_of_several_batches_goes_only_when_all_of_them_are_finished(monkeypatch):
    monkeypatch.setattr(limits, "MAX_TAIL_BYTES", 400)
    table = memory_table()
    for number in range(12):
        worker = Worker(table, clock=ToldClock(OLD), batch=f"batch-{number}")
        worker.process(ponder(f"m-{number}", enqueued_at=OLD))
    indexed = index_of(table)[0]
    assert indexed.ends[0] > 1

    one_is_open = OpenBatches(names=frozenset({"batch-1"}))
    drive(truncate_stream(table, KEY, TruncationRules.of(NOW, one_is_open, older_than=DAY), PATIENCE))
    assert len(made_by(table)) == 12
    everything = TruncationRules.of(NOW, OpenBatches(), older_than=DAY)
    drive(truncate_stream(table, KEY, everything, PATIENCE))
    assert made_by(table) == ["m-11"]


def test_index_rows_go_with_the_last_of_their_versions(monkeypatch):
    monkeypatch.setattr(limits, "MAX_SEGMENT_BYTES", 0)
    monkeypatch.setattr(limits, "MAX_INDEX_HASHES", 3)
    table = memory_table()
    for number in range(9):
        worker = Worker(table, clock=ToldClock(OLD))
        worker.process(ponder(f"m-{number}", enqueued_at=OLD))
    assert [row.last for row in index_of(table)] == [3, 6, 9]

    for kept, left in ((7, 3), (6, 2), (4, 2), (3, 1)):
        rules = TruncationRules.of(NOW, OpenBatches(), older_than=DAY, acknowledged_after=0, keep_last=kept)
        drive(truncate_stream(table, KEY, rules, PATIENCE))
        assert len(made_by(table)) == kept
        assert len(index_of(table)) == left
        check_index(table)
