from __future__ import annotations

import pytest

from eventstore import Int64, Operation, Value

ROW: dict[str, Value] = {
    "A": 1,
    "B": Int64(2),
    "Small": b"x" * 100,
    "Large": b"l" * 2000,
    "Larger": b"m" * 9000,
    "Largest": b"n" * 60000,
}


@pytest.fixture
def rows(run, table):
    run(table.transact("p", [Operation.insert("a", ROW), Operation.insert("b", {"A": 2})]))


@pytest.mark.parametrize(
    "select",
    [
        [],
        ["A"],
        ["A", "Missing"],
        ["Small"],
        ["Large"],
        ["Larger", "A"],
        ["Largest"],
        ["Largest", "Large"],
        ["B", "Large", "Larger", "Largest", "Small", "A"],
        ["A", "A"],
    ],
)
def test_only_the_properties_named_are_read(run, table, rows, select):
    first, second = run(table.query("p", "a", "b", select=select)).rows

    assert first.properties == {name: ROW[name] for name in set(select) if name in ROW}
    assert second.properties == {name: 2 for name in set(select) if name == "A"}
    assert [type(first.properties[name]) for name in ["B"] if name in select] == [Int64] * ("B" in select)
    assert (first.partition_key, first.row_key) == ("p", "a")


def test_without_a_selection_all_properties_are_read(run, table, rows):
    first, second = run(table.query("p", "a", "b")).rows

    assert first.properties == ROW
    assert second.properties == {"A": 2}


def test_a_projected_row_can_be_written_under_its_etag(run, table, rows):
    (row,) = run(table.query("p", "a", "a", select=["A"])).rows

    run(table.transact("p", [Operation.merge("a", {"A": 9}, row.etag)]))

    assert run(table.get("p", "a")).properties == {**ROW, "A": 9}
