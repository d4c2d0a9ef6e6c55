from __future__ import annotations

import pytest

from eventstore import InterceptedTable, Operation, connect, drive


@pytest.fixture
def table():
    return drive(connect("memory:").table("games"))


def call_all(table):
    drive(table.transact("p", [Operation.insert("r", {"V": 1})]))
    drive(table.get("p", "r"))
    drive(table.query("p", "a", "z", select=["V"]))
    drive(table.scan("r"))
    drive(table.barrier())


def test_calls_are_counted_by_name(table):
    watched = InterceptedTable(table)

    call_all(watched)

    assert watched.counts == {"transact": 1, "get": 1, "query": 1, "scan": 1, "barrier": 1}
    assert watched.calls == 5


def test_hooks_are_told_of_each_call(table):
    seen: list[tuple[object, ...]] = []
    watched = InterceptedTable(
        table,
        before=lambda name, key, number: seen.append(("before", name, key, number)),
        after=lambda name, key, number, result: seen.append(
            ("after", name, key, number, type(result).__name__)
        ),
    )

    call_all(watched)

    assert seen == [
        ("before", "transact", "p", 1),
        ("after", "transact", "p", 1, "tuple"),
        ("before", "get", "p", 2),
        ("after", "get", "p", 2, "Row"),
        ("before", "query", "p", 3),
        ("after", "query", "p", 3, "Page"),
        ("before", "scan", "", 4),
        ("after", "scan", "", 4, "Page"),
        ("before", "barrier", "", 5),
        ("after", "barrier", "", 5, "NoneType"),
    ]


def fail(*_call):
    raise TimeoutError


def test_an_error_before_a_call_keeps_it_from_taking_place(table):
    with pytest.raises(TimeoutError):
        drive(InterceptedTable(table, before=fail).transact("p", [Operation.insert("r", {})]))

    assert drive(table.get("p", "r")) is None


def test_an_error_after_a_call_loses_only_the_answer(table):
    with pytest.raises(TimeoutError):
        drive(InterceptedTable(table, after=fail).transact("p", [Operation.insert("r", {})]))

    assert drive(table.get("p", "r")) is not None


def test_a_hook_can_await(table):
    async def insert(_name, _key, _number):
        await table.transact("p", [Operation.insert("r", {})])

    assert drive(InterceptedTable(table, before=insert).get("p", "r")) is not None
