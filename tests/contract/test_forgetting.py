"""A business object is forgotten on every backend: its rows are gone, and its tombstone refuses or begins anew."""

import pytest

from eventstore import Operation
from runtime.clock import to_datetime
from runtime.maintenance.forget import Tables, find_trace, forget, scrub
from runtime.retries import RetryPolicy
from tests.unit.runtime.diary import DIARY, write
from tests.unit.runtime.worker import HOUR, NOW, ToldClock, Worker, ends

KEY = f"Diary-{DIARY}"
LEFT = 1230
"""So many rows that they are deleted in several pages, and in many transactions."""


@pytest.fixture
def diary(run, table):
    """Fill a stream, and put rows beside it such as letters or a crash leave."""
    run(Worker(table).handle(write("a secret"), write("another")))
    for start in range(0, LEFT, 100):
        numbers = range(start, min(start + 100, LEFT))
        letters = [Operation.insert(f"SS-LTR-{number:016}", {"Letters": b"secret"}) for number in numbers]
        run(table.transact(KEY, letters))
    return table


@pytest.mark.parametrize("restart", [False, True])
def test_one_row_is_left(run, diary, contents, restart):
    tables = Tables(diary, diary, diary)
    trace = run(find_trace(tables, "Diary", DIARY))
    assert (trace.versions, trace.rows) == (2, {"letters": LEFT})

    assert run(forget(tables, "Diary", DIARY, NOW, restart=restart, retries=RetryPolicy()))
    run(scrub(tables))

    (row,) = contents(KEY)
    at = to_datetime(NOW)
    mark = {"Forgotten": at} if restart else {"Forgotten": at, "Refuses": True}
    assert row.row_key == "SS-HEAD"
    assert row.properties == mark | {
        "Version": 0, "StateSchema": 1, "StateVersions": 0, "LastNow": at, "Horizon": at, "UndatedCut": True
    }  # fmt: skip
    later = write("later", enqueued_at=NOW + 1)
    (outcome,) = run(Worker(diary, clock=ToldClock(NOW + HOUR)).handle(later))
    assert ends([outcome]) == (["processed"] if restart else ["forgotten"])
    assert outcome.version == (1 if restart else None)


def test_the_cost_is_a_request_for_each_99_rows_of_a_page_and_some(run, diary):
    from eventstore import InterceptedTable

    watched = InterceptedTable(diary)

    run(forget(Tables(watched, watched, watched), "Diary", DIARY, NOW, restart=False, retries=RetryPolicy()))

    assert watched.counts["transact"] == -(-LEFT // 99) + 3
