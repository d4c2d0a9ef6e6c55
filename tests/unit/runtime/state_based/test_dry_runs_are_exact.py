"""A dry run tells exactly what a run does: versions, rows and bytes, and what of each stream is held."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import Row, Table, drive
from eventstore import writing as event_truncation
from eventstore.limits import row_bytes
from runtime.algorithms.state_based.truncation import Truncated, TruncationRules, truncate_stream
from runtime.ledger.batch import OpenBatches
from runtime.versions import limits
from tests.unit.runtime.diary import ponder
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import copy_of, memory_table
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker

KEY = "Diary-d-1"
OPEN = OpenBatches(names=frozenset({"open"}))

commits = st.lists(
    st.tuples(
        st.integers(1, 4),  # messages
        st.integers(1, 20),  # days ago
        st.sampled_from([None, "published", "open"]),
        st.booleans(),  # with enqueued_at
    ),
    min_size=1,
    max_size=12,
)
OPEN = OpenBatches(names=frozenset({"open"}))
rules = st.builds(
    lambda age, last, undated, acknowledged: TruncationRules.of(
        NOW,
        OPEN,
        older_than=age * DAY,
        keep_last=last,
        allow_undated=undated,
        acknowledged_after=acknowledged,
    ),
    st.integers(1, 20),
    st.integers(0, 10),
    st.booleans(),
    st.sampled_from([None, 0, 5 * DAY]),
)
layouts = st.fixed_dictionaries(
    {
        "MAX_TAIL_BYTES": st.sampled_from([0, 400, limits.MAX_TAIL_BYTES]),
        "MAX_SEGMENT_BYTES": st.sampled_from([0, limits.MAX_SEGMENT_BYTES]),
        "MAX_INDEX_HASHES": st.sampled_from([3, limits.MAX_INDEX_HASHES]),
    }
)


def stream_of(made) -> Table:
    table = memory_table()
    ages = sorted((each[1] for each in made), reverse=True)
    for number, ((messages, _, batch, is_dated), age) in enumerate(zip(made, ages, strict=True)):
        sent = NOW - age * DAY
        Worker(table, clock=ToldClock(sent), batch=batch).process(
            *(ponder(f"{number}-{each}", enqueued_at=sent if is_dated else None) for each in range(messages))
        )
    return table


def rows(table: Table) -> list[Row]:
    return list(drive(table.scan(None)).rows)


def size(table: Table) -> int:
    return sum(map(row_bytes, rows(table)))


def cut(table: Table, by: TruncationRules, *, dry_run: bool = False) -> Truncated:
    truncated = drive(truncate_stream(table, KEY, by, PATIENCE, dry_run=dry_run))
    assert truncated is not None
    return truncated


def check(table: Table, by: TruncationRules) -> Truncated:
    """Truncate a table, dry and then really; what both tell is what is gone."""
    rows_before, size_before = rows(table), size(table)

    told = cut(table, by, dry_run=True)
    assert rows(table) == rows_before

    done = cut(table, by)
    assert done == told
    assert done.rows == len(rows_before) - len(rows(table))
    assert done.bytes == size_before - size(table)
    return done


@given(commits, layouts, rules, rules)
def test_what_a_dry_run_tells_is_what_goes(made, layout, first, second):
    with patch.multiple(limits, **layout):
        table = stream_of(made)

        check(table, first)
        check(table, second)
        again = check(table, second)

    assert (again.versions, again.rows, again.bytes) == (0, 0, 0)


@pytest.mark.parametrize("at_once", [1, 3, 64])
def test_rows_that_a_crash_has_left_are_told_too(at_once, monkeypatch):
    # Given a truncation that dies after its first transaction, which deletes two of ten rows
    monkeypatch.setattr(limits, "MAX_SEGMENT_BYTES", 0)
    monkeypatch.setattr(event_truncation, "_CHANGES", 3)
    monkeypatch.setattr(event_truncation, "_MEASURED_AT_ONCE", at_once)
    table = stream_of([(1, 9, None, True)] * 11)
    whole = copy_of(table)
    by = TruncationRules.of(NOW, OpenBatches(), older_than=DAY, acknowledged_after=0)
    with monkeypatch.context() as patched:
        patched.setattr(event_truncation, "_delete", _first_only)
        cut(table, by)
    deleted = len(rows(whole)) - len(rows(table))

    # When it is told what is left to do, and that is done
    left = check(table, by)

    # Then both together have deleted what one run deletes
    assert left.rows > 0
    assert left.rows + deleted == check(whole, by).rows


_delete = event_truncation._delete


async def _first_only(partition, header, mark, doomed, included=()):
    return await _delete(partition, header, mark, doomed[: 3 - len(included)], included)
