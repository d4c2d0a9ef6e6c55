"""Running coroutines without an event loop, and tables whose calls are watched and disturbed."""

import asyncio

import pytest

from eventstore import InterceptedTable, Operation, connect, drive


async def answer():
    return 42


async def wait(closed):
    try:
        await asyncio.sleep(0)
    finally:
        closed.append(True)


def test_a_coroutine_that_never_suspends_is_run_to_its_end_and_one_that_does_is_closed():
    closed: list[bool] = []

    assert drive(answer()) == 42
    with pytest.raises(RuntimeError, match="event loop"):
        drive(wait(closed))
    assert closed == [True]


@pytest.fixture
def table():
    return drive(connect("memory:").table("games"))


def call_all(table):
    drive(table.transact("p", [Operation.insert("r", {"V": 1})]))
    drive(table.get(partition_key="p", row_key="r"))
    drive(table.query("p", "a", "z", select=["V"]))
    drive(table.scan("r"))
    drive(table.barrier())


NAMES = ["transact", "get", "query", "scan", "barrier"]


def test_calls_are_counted_by_name_and_hooks_are_told_of_each(table):
    before, after = [], []
    watched = InterceptedTable(
        table,
        before=lambda *call: before.append(call),
        after=lambda *call: after.append((*call[:3], type(call[3]).__name__)),
    )

    call_all(watched)

    assert (watched.counts, watched.calls) == (dict.fromkeys(NAMES, 1), 5)
    keys, results = ["p", "p", "p", "", ""], ["tuple", "Row", "Page", "Page", "NoneType"]
    assert before == list(zip(NAMES, keys, range(1, 6), strict=True))
    assert after == list(zip(NAMES, keys, range(1, 6), results, strict=True))
