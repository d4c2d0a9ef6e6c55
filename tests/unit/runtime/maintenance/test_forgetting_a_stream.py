"""A stream that is forgotten leaves a tombstone and nothing else, whatever happens meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from eventstore import InterceptedTable, Table, drive
from runtime.algorithms.state_based.truncation import RetentionRules
from runtime.clock import to_datetime
from runtime.errors import UsageError
from runtime.maintenance.forget import Tables, find_trace, forget
from runtime.maintenance.policies import Policies, Scope
from runtime.versions import limits
from tests.unit.runtime.accidents import At, CrashError, crash
from tests.unit.runtime.diary import DIARY, misbehave, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import copy_of, memory_table, rows
from tests.unit.runtime.worker import DAY, HOUR, NOW, ToldClock, Worker, ends

KEY = f"Diary-{DIARY}"
OLD = NOW - 10 * DAY


@pytest.fixture(scope="module")
def long_stream() -> Table:
    """Give a stream with runs, index rows, letters and a tail, beside another stream."""
    table = memory_table()
    worker = Worker(table, clock=ToldClock(OLD))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_SEGMENT_BYTES", 200)
        patch.setattr(limits, "MAX_TAIL_BYTES", 2000)
        for number in range(130):
            worker.process(write(f"canary {number}", f"m-{number}", enqueued_at=OLD + number))
    worker.process(misbehave("fail", "canary that failed", enqueued_at=OLD))
    Worker(table, business_id="d-2").process(write("kept", diary="d-2"))
    return table


@pytest.fixture
def table(long_stream: Table) -> Table:
    return copy_of(long_stream)


def erase(table: Table, now: int = NOW, *, restart: bool = False) -> bool:
    return drive(forget(Tables(table, table, table), "Diary", DIARY, now, restart=restart, retries=PATIENCE))


def of_the_object(table: Table) -> dict[str, object]:
    return {row_key: properties for (key, row_key), properties in rows(table).items() if key == KEY}


def tombstone(now: int = NOW, *, restart: bool = False) -> dict[str, object]:
    at = to_datetime(now)
    mark = {"Forgotten": at} if restart else {"Forgotten": at, "Refuses": True}
    header = {"Version": 0, "StateSchema": 1, "StateVersions": 0, "LastNow": at, "Horizon": at}
    return {"SS-HEAD": {**header, "UndatedCut": True, **mark}}


def test_what_there_is_can_be_looked_at_before(table):
    tables = Tables(table, table, table)
    keys, before = list(of_the_object(table)), rows(table)

    trace = drive(find_trace(tables, "Diary", DIARY))

    assert trace is not None
    assert (trace.key, trace.versions, trace.messages, trace.algorithm) == (KEY, 130, 0, None)
    index, runs = (sum(key.startswith(kind) for key in keys) for kind in ("SS-IDX", "SS-SE"))
    assert trace.rows == {"index": index, "letters": 1, "runs": runs}
    assert trace.forgotten_at is None
    assert drive(find_trace(tables, "Diary", "nobody")) is None
    assert not drive(forget(tables, "Diary", "nobody", NOW, restart=False, retries=PATIENCE))
    assert rows(table) == before
    erase(table)
    after = drive(find_trace(tables, "Diary", DIARY))
    assert after is not None
    assert (after.versions, after.rows, after.forgotten_at) == (0, {}, NOW)


def test_a_message_of_a_sender_whose_clock_is_ahead_is_too_late_all_the_same(table):
    ahead = NOW + HOUR // 2
    Worker(table).process(write("ahead", enqueued_at=ahead))

    erase(table, restart=True)

    assert ends(Worker(table).process(write("ahead", enqueued_at=ahead))) == ["too_late"]


def erased(
    table: Table, happens: Callable[[Table], Any], when: str = "before", *, restart: bool = False
) -> Iterator[Table]:
    """Forget the object on copies of the table; something happens at the first call, at the second, and so on."""
    counted = InterceptedTable(copy_of(table))
    erase(counted, restart=restart)
    for call in range(1, counted.calls + 1):
        target = copy_of(table)
        step = At(call, partial(happens, target))
        with suppress(CrashError):
            erase(InterceptedTable(target, **{when: step}), restart=restart)
        yield target


@pytest.mark.parametrize("restart", [False, True])
def test_after_a_crash_at_any_call_it_refuses_and_running_again_finishes(table, restart):
    complete, unbegun = 0, 0
    for crashed in (
        each for when in ("before", "after") for each in erased(table, crash, when, restart=restart)
    ):
        left = of_the_object(crashed)
        known = ends(Worker(copy_of(crashed)).process(write("canary 129", "m-129", enqueued_at=OLD + 129)))
        if left == of_the_object(table):
            assert known == ["duplicate"]
            unbegun += 1
        elif left == tombstone(restart=True):
            assert known == ["too_late"]
            complete += 1
        else:
            assert known == ["forgotten"]

        erase(crashed, NOW + 1, restart=restart)
        assert of_the_object(crashed) == tombstone(NOW + 1, restart=restart)

    assert unbegun > 0
    assert (complete > 0) is restart


def test_an_object_under_a_hold_is_not_forgotten(table):
    policies, scope = Policies(table, ToldClock()), Scope("Diary", DIARY)
    drive(policies.change(scope, hold=True))
    before = of_the_object(table)

    with pytest.raises(UsageError, match="A policy holds Diary-d-1"):
        erase(table)
    trace = drive(find_trace(Tables(table, table, table), "Diary", DIARY))
    assert trace is not None
    assert trace.held
    assert of_the_object(table) == before

    drive(policies.change(scope, hold=False))
    erase(table)
    assert of_the_object(table) == tombstone()


def test_its_own_rules_go_with_it_and_those_of_others_stay(table):
    policies = Policies(table, ToldClock())
    for scope in (Scope("Diary", DIARY), Scope("Diary", "d-2"), Scope("Diary")):
        drive(policies.set_rules(scope, RetentionRules(keep_last=1)))

    erase(table)

    assert {policy.scope for policy in drive(policies.all())} == {Scope("Diary", "d-2"), Scope("Diary")}
