"""A truncation may die at any of its calls; what it leaves can be read, and a dry run tells exactly what a run does."""

from itertools import product
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import InterceptedTable, Operation, Row, Table, drive
from eventstore import writing as event_truncation
from eventstore.limits import row_bytes
from eventstore.port import Verb
from runtime.algorithms.state_based.truncation import (
    Truncated,
    TruncationChoices,
    TruncationRules,
    truncate_stream,
)
from runtime.ledger.batch import OpenBatches
from runtime.versions import limits
from tests.unit.runtime.accidents import At, CrashError, crash
from tests.unit.runtime.diary import DIARY, ponder
from tests.unit.runtime.indexes import check_index
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import copy_of, memory_table, rows
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker, made_by, open_batches, outputs

# A truncation may die at any of its calls.


KEY = f"Diary-{DIARY}"
OLD = NOW - 10 * DAY
COUNT = 210
"""So many runs that their rows are deleted in three transactions."""

RULES = TruncationChoices(older_than=DAY, acknowledged_after=0).as_of(NOW, OpenBatches())


@pytest.fixture(scope="module", params=[0, 200, 2**15], ids=["runs", "runs and a tail", "a tail"])
def long_stream(request: pytest.FixtureRequest) -> Table:
    """Give a stream of many commits, all but the newest of which may go; the last but one was enqueued last."""
    table = memory_table()
    worker = Worker(table, clock=ToldClock(OLD))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_SEGMENT_BYTES", request.param)
        patch.setattr(limits, "MAX_TAIL_BYTES", 10 * request.param)
        for number in range(COUNT):
            worker.process(ponder(f"m-{number}", enqueued_at=OLD + number))
    return table


@pytest.fixture(scope="module")
def truncated(long_stream: Table) -> Table:
    """Give the same stream, truncated without any accident."""
    table = copy_of(long_stream)
    drive(truncate_stream(table, KEY, RULES, PATIENCE))
    assert made_by(table) == [f"m-{COUNT - 1}"]
    return table


def truncate(table: Table) -> None:
    drive(truncate_stream(table, KEY, RULES, PATIENCE))


def crashing(table: Table, call: int, *, effect: bool) -> InterceptedTable:
    """Return the table, where the process dies at a call: before it, or after it took effect."""
    return InterceptedTable(table, **{"after" if effect else "before": At(call, crash)})


def test_after_any_crash_the_stream_can_be_read_and_running_again_finishes(
    long_stream: Table, truncated: Table
):
    counted = InterceptedTable(copy_of(long_stream))
    truncate(counted)
    events = sum(key.startswith("SS-SE-") for _, key in rows(long_stream))
    assert counted.counts["transact"] == (3 if events == COUNT else 1)
    newest = Worker(copy_of(long_stream)).process(ponder(f"m-{COUNT - 1}"))

    for call, effect in product(range(1, counted.calls + 1), (False, True)):
        crashed = copy_of(long_stream)
        with pytest.raises(CrashError):
            truncate(crashing(crashed, call, effect=effect))

        # The stream can be read: its newest version is known, and gives the outputs that it gave.
        assert outputs(Worker(crashed).process(ponder(f"m-{COUNT - 1}"))) == outputs(newest)
        assert made_by(crashed)[-1] == f"m-{COUNT - 1}"
        check_index(crashed)

        # Truncating again leaves exactly what a truncation without a crash leaves.
        truncate(crashed)
        assert rows(crashed) == rows(truncated)


class Watch(InterceptedTable):
    """A table that notes, for each transaction, the header's horizon after it and how many rows it deleted."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.seen: list[tuple[object, int]] = []

    async def transact(self, partition_key: str, operations: list[Operation]) -> tuple[str, ...]:  # type: ignore[override]
        etags = await super().transact(partition_key, operations)
        header = await self._table.get(partition_key, "SS-HEAD")
        assert header is not None
        deleted = sum(operation.verb is Verb.DELETE for operation in operations)
        self.seen.append((header.properties.get("Horizon"), deleted))
        return etags


def test_the_horizon_moves_with_the_first_delete_at_the_latest(long_stream: Table, truncated: Table):
    watch = Watch(copy_of(long_stream))

    truncate(watch)

    gone = rows(long_stream).keys() - rows(truncated).keys()
    assert sum(deleted for _, deleted in watch.seen) == len(gone)
    (horizon,) = {horizon for horizon, _ in watch.seen}
    assert horizon is not None


# A dry run tells exactly what a run does: versions, rows and bytes, and what of each stream is held.


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
rules = st.builds(
    lambda **given: TruncationChoices(**given).as_of(NOW, open_batches("open")),
    older_than=st.integers(1, 20).map(lambda days: days * DAY),
    keep_last=st.integers(0, 10),
    allow_undated=st.booleans(),
    acknowledged_after=st.sampled_from([None, 0, 5 * DAY]),
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


def rows_of(table: Table) -> list[Row]:
    return list(drive(table.scan(None)).rows)


def size(table: Table) -> int:
    return sum(map(row_bytes, rows_of(table)))


def cut(table: Table, by: TruncationRules, *, dry_run: bool = False) -> Truncated:
    truncated = drive(truncate_stream(table, KEY, by, PATIENCE, dry_run=dry_run))
    assert truncated is not None
    return truncated


def check(table: Table, by: TruncationRules) -> Truncated:
    """Truncate a table, dry and then really; what both tell is what is gone."""
    rows_before, size_before = rows_of(table), size(table)

    told = cut(table, by, dry_run=True)
    assert rows_of(table) == rows_before

    done = cut(table, by)
    assert done == told
    assert done.rows == len(rows_before) - len(rows_of(table))
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
    # Given a truncation that dies after its first transaction, which deletes two of ten rows_of
    monkeypatch.setattr(limits, "MAX_SEGMENT_BYTES", 0)
    monkeypatch.setattr(event_truncation, "_CHANGES", 3)
    monkeypatch.setattr(event_truncation, "_MEASURED_AT_ONCE", at_once)
    table = stream_of([(1, 9, None, True)] * 11)
    whole = copy_of(table)
    with monkeypatch.context() as patched:
        patched.setattr(event_truncation, "_delete", _first_only)
        cut(table, RULES)
    deleted = len(rows_of(whole)) - len(rows_of(table))

    # When it is told what is left to do, and that is done
    left = check(table, RULES)

    # Then both together have deleted what one run deletes
    assert left.rows > 0
    assert left.rows + deleted == check(whole, RULES).rows


_delete = event_truncation._delete


async def _first_only(partition, header, mark, doomed, included=()):
    return await _delete(partition, header, mark, doomed[: 3 - len(included)], included)
