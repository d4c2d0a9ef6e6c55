"""A truncation may die at any of its calls.

The stream can be read all the same, nothing is handled twice, and running it again finishes the work.
"""

from collections.abc import Iterator

import pytest

from eventstore import InterceptedTable, Operation, StoreUnavailableError, Table, drive
from eventstore.port import Verb
from runtime.algorithms.state_based.truncation import TruncationRules, truncate_stream
from runtime.ledger.batch import OpenBatches
from runtime.versions import limits
from tests.unit.runtime.diary import DIARY, ponder, write
from tests.unit.runtime.indexes import check_index
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import copy_of, memory_table, rows
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker, ends, made_by, outputs

KEY = f"Diary-{DIARY}"
OLD = NOW - 10 * DAY
COUNT = 230
"""So many runs that their rows are deleted in three transactions."""

RULES = TruncationRules.of(NOW, OpenBatches(), older_than=DAY, acknowledged_after=0)


class CrashError(Exception):
    """Stands for a process that died."""


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


def count_calls(table: Table) -> int:
    counted = InterceptedTable(table)
    truncate(counted)
    return counted.calls


def crashing(table: Table, call: int, *, effect: bool) -> InterceptedTable:
    """Return the table, where the process dies at a call: before it, or after it took effect."""

    def die(name: str, partition: str, number: int, *_: object) -> None:
        if number == call:
            raise CrashError

    return InterceptedTable(table, after=die) if effect else InterceptedTable(table, before=die)


def crash_points(table: Table) -> Iterator[Table]:
    """Give the table as it is after a crash at each call of a truncation."""
    for call in range(1, count_calls(copy_of(table)) + 1):
        for effect in (False, True):
            crashed = copy_of(table)
            with pytest.raises(CrashError):
                truncate(crashing(crashed, call, effect=effect))
            yield crashed


def test_there_are_several_transactions_to_crash_at(long_stream: Table):
    counted = InterceptedTable(copy_of(long_stream))

    truncate(counted)

    events = sum(key.startswith("SS-SE-") for _, key in rows(long_stream))
    assert counted.counts["transact"] == (3 if events == COUNT else 1)


def test_after_any_crash_the_stream_can_be_read_and_running_again_finishes(
    long_stream: Table, truncated: Table
):
    newest = Worker(copy_of(long_stream)).process(ponder(f"m-{COUNT - 1}"))
    points = 0
    for crashed in crash_points(long_stream):
        points += 1

        # The stream can be read: its newest version is known, and gives the outputs that it gave.
        assert outputs(Worker(crashed).process(ponder(f"m-{COUNT - 1}"))) == outputs(newest)
        assert made_by(crashed)[-1] == f"m-{COUNT - 1}"

        check_index(crashed)

        # Truncating again leaves exactly what a truncation without a crash leaves.
        truncate(crashed)
        assert rows(crashed) == rows(truncated)
    assert points == 2 * count_calls(copy_of(long_stream)) >= 8


def test_after_any_crash_no_message_of_the_past_is_taken_for_new(long_stream: Table):
    # Not the oldest, not one in the middle, not the last that is cut: known, or too late.
    for crashed in crash_points(long_stream):
        past = [
            ponder(f"m-{number}", enqueued_at=OLD + number)
            for number in (0, 98, 99, 150, COUNT - 2, COUNT - 1)
        ]

        statuses = ends(Worker(crashed, batch="other").process(*past))

        assert set(statuses) <= {"duplicate", "too_late"}
        assert statuses[-1] == "duplicate"


def test_after_any_crash_new_messages_are_handled_and_truncating_again_finishes(long_stream: Table):
    for crashed in crash_points(long_stream):
        (outcome,) = Worker(crashed, clock=ToldClock(NOW)).process(write("new", enqueued_at=NOW))
        assert (ends([outcome]), outcome.version) == (["processed"], COUNT + 1)

        truncate(crashed)

        assert made_by(crashed) == ["new"]
        events = [key for _, key in rows(crashed) if key.startswith("SS-SE-")]
        assert len(events) == 0, "only the tail is left"


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

    horizons = {horizon for horizon, _ in watch.seen}
    gone = rows(long_stream).keys() - rows(truncated).keys()
    assert sum(deleted for _, deleted in watch.seen) == len(gone)
    assert len(horizons) == 1
    assert None not in horizons


def test_an_answer_that_is_lost_is_no_crash(long_stream: Table, truncated: Table):
    for call in range(1, count_calls(copy_of(long_stream)) + 1):
        for effect in (False, True):
            table = copy_of(long_stream)
            truncate(_losing(table, call, effect=effect))
            assert rows(table) == rows(truncated)


def _losing(table: Table, call: int, *, effect: bool) -> InterceptedTable:
    def lose(name: str, partition: str, number: int, *_: object) -> None:
        if number == call:
            raise StoreUnavailableError("no answer", outcome_unknown=effect)

    return InterceptedTable(table, after=lose) if effect else InterceptedTable(table, before=lose)


def test_a_writer_in_between_does_not_lose_its_version(long_stream: Table):
    for call in range(1, count_calls(copy_of(long_stream)) + 1):
        table = copy_of(long_stream)

        def add(name: str, partition: str, number: int, call: int = call, table: Table = table):
            new = ponder("new", enqueued_at=NOW)
            return Worker(table, clock=ToldClock(NOW)).handle(new) if number == call else None

        truncate(InterceptedTable(table, before=add))

        assert made_by(table)[-1] == "new"
        assert ends(Worker(table).process(ponder("new"), ponder("m-5", enqueued_at=OLD + 5))) == [
            "duplicate",
            "too_late",
        ]
