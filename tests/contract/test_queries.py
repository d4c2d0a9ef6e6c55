"""Tables of a store, and ranges, scans and point reads of a table."""

import asyncio
import gc
from functools import partial

import pytest

from eventstore import (
    PAGE_SIZE,
    Int64,
    Operation,
    StoreUrlError,
    TableNameError,
    TableNotFoundError,
    Value,
    connect,
    pages,
)
from tests.support.streams import collect


def put(run, table, **properties):
    run(table.transact("p", [Operation.insert_or_replace("r", properties)]))


def test_a_name_in_any_case_opens_one_table(run, store):
    put(run, run(store.table("Scores")), V=1)

    for name in ("Scores", "sCORES"):
        table = run(store.table(name))
        assert run(table.get("p", "r")).properties == {"V": 1}
        assert table.scope == store.scope


def test_a_table_can_be_opened_without_making_it(run, store):
    for _ in range(2):
        with pytest.raises(TableNotFoundError) as raised:
            run(store.table("games7", make=False))
        assert (raised.value.table, raised.value.store) == ("games7", store.url)

    put(run, run(store.table("games7")), V=1)

    assert run(run(store.table("games7", make=False)).get("p", "r")).properties == {"V": 1}


@pytest.mark.parametrize(
    "name", ["", "ab", "x" * 64, "9games", "ga mes", "ga-mes", "ga_mes", "gämes", "tables", "a;b"]
)
def test_a_name_that_no_table_can_have_is_refused(run, store, name):
    with pytest.raises(TableNameError) as raised:
        run(store.table(name))
    assert not isinstance(raised.value, StoreUrlError)


def test_a_store_can_be_used_in_an_async_with_and_opens_again(run, store):
    async def use():
        async with store as opened:
            await (await opened.table("games")).barrier()
            return opened is store

    assert run(use())
    assert run(run(store.table("games")).get("nowhere", "nothing")) is None


async def use(store, number):
    table = await store.table("loops")
    await table.transact(f"p{number}", [Operation.insert_or_replace("r", {"N": number})])
    return (await table.get(f"p{number}", "r")).properties["N"]


def test_one_event_loop_after_the_other_uses_a_store_and_none_leaves_a_connection_open(store_url, caplog):
    store = connect(store_url)
    assert [asyncio.run(use(store, number)) for number in range(3)] == [0, 1, 2]

    del store
    gc.collect()  # a warning of what was left open fails the test
    assert "Unclosed" not in caplog.text


# Ranges.


def insert_all(run, table, partition_key, row_keys):
    for start in range(0, len(row_keys), 100):
        batch = [Operation.insert(key, {"K": key}) for key in row_keys[start : start + 100]]
        run(table.transact(partition_key, batch))


def keys(page):
    return [row.row_key for row in page.rows]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (("p", "b", "c"), ["b", "c"]),
        (("p", "b", "b"), ["b"]),
        (("p", "aa", "cc"), ["b", "c"]),
        (("p", "x", "z"), []),
        (("p", "x", "x"), []),
        (("p", "c", "b"), []),
        (("nowhere", "a", "z"), []),
        (("nowhere", "a", "a"), []),
    ],
)
def test_a_range_has_both_its_ends(run, table, asked, expected):
    insert_all(run, table, "p", ["a", "b", "c", "d"])

    assert keys(run(table.query(*asked))) == expected


def test_a_range_of_one_row_gives_that_row(run, table):
    keys = ["a", "b/c", "d e+f", "g(h)='i'", "%25", "ü|~"]
    run(table.transact("p q/'r'", [Operation.insert(key, {"N": 1, "M": 2}) for key in keys]))

    for key in keys:
        found = run(table.get("p q/'r'", key))
        assert (found.partition_key, found.row_key, found.properties) == ("p q/'r'", key, {"N": 1, "M": 2})
        assert run(table.query("p q/'r'", key, key)).rows == (found,)
        (selected,) = run(table.query("p q/'r'", key, key, select=["M"])).rows
        assert (selected.etag, selected.properties) == (found.etag, {"M": 2})
    assert run(table.get("p q/'r'", "z")) is None
    assert run(table.get("p q", "a")) is None


MANY = [f"r{number:05d}" for number in range(2 * PAGE_SIZE + 30)]


def test_more_rows_than_a_page_come_in_pages_and_a_full_one_may_be_the_last(run, table):
    insert_all(run, table, "p", MANY)
    insert_all(run, table, "q", ["r00001"])

    found = run(collect(pages(partial(table.query, "p", "r00005", "r99999", select=["K"]))))
    full = run(table.query("p", "", MANY[PAGE_SIZE - 1]))

    assert [len(page.rows) for page in found] == [PAGE_SIZE, PAGE_SIZE, len(MANY) - 5 - 2 * PAGE_SIZE]
    assert [key for page in found for key in keys(page)] == MANY[5:]
    assert found[1].rows[0].properties == {"K": MANY[5 + PAGE_SIZE]}
    assert (len(full.rows), full.continuation) == (PAGE_SIZE, None)


# Projection.

ROW: dict[str, Value] = {
    "A": 1,
    "B": Int64(2),
    "Small": b"x" * 100,
    "Large": b"l" * 2000,
    "Larger": b"m" * 9000,
    "Largest": b"n" * 60000,
}


@pytest.mark.parametrize(
    "select",
    [
        None,
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
def test_only_the_properties_named_are_read(run, table, select):
    run(table.transact("p", [Operation.insert("a", ROW), Operation.insert("b", {"A": 2})]))
    names = ROW if select is None else set(select)

    first, second = run(table.query("p", "a", "b", select=select)).rows

    assert first.properties == {name: ROW[name] for name in names if name in ROW}
    assert second.properties == {name: 2 for name in names if name == "A"}
    assert {type(value) for name, value in first.properties.items() if name == "B"} <= {Int64}
    run(table.transact("p", [Operation.merge("a", {"A": 9}, first.etag)]))
    assert run(table.get("p", "a")).properties == {**ROW, "A": 9}


# Scans.


def make(run, table, partition_keys):
    for key in partition_keys:
        head = Operation.insert("head", {"K": key, "L": b"x" * 600})
        run(table.transact(key, [head, Operation.insert("x", {})]))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (("head",), ["a/1", "b", "c", "d"]),
        (("head", "b", "c"), ["b", "c"]),
        (("head", "b"), ["b", "c", "d"]),
        (("head", "", "b"), ["a/1", "b"]),
        (("head", "b", "b"), ["b"]),
        (("missing",), []),
    ],
)
@pytest.mark.parametrize("select", [None, ["K"], []])
def test_a_scan_finds_one_row_of_each_partition(run, table, asked, expected, select):
    make(run, table, ["c", "a/1", "d", "b"])
    run(table.transact("no-head", [Operation.insert("x", {})]))

    page = run(table.scan(*asked, select=select))

    assert [(row.partition_key, row.row_key, row.properties) for row in page.rows] == [
        (key, "head", {"K": key, "L": b"x" * 600} if select is None else dict.fromkeys(select, key))
        for key in expected
    ]
    for row in page.rows:
        assert run(table.query(row.partition_key, "head", "head", select=select)).rows == (row,)
    assert page.continuation is None
    whole = run(table.scan(None, *asked[1:], select=select)).rows
    assert asked[0] == "missing" or page.rows == tuple(row for row in whole if row.row_key == "head")


@pytest.mark.parametrize("select", [None, ["N"]])
def test_a_scan_of_all_rows_comes_in_pages_that_end_anywhere(run, table, select):
    in_each = 40
    partition_keys = [f"p{number:02d}" for number in range(PAGE_SIZE // in_each + 2)]
    row_keys = [f"r/{number:02d}" for number in range(in_each)]
    run(table.transact("o", [Operation.insert("r", {})]))
    for key in partition_keys:
        run(table.transact(key, [Operation.insert(row_key, {"N": 1}) for row_key in row_keys]))

    first, second = run(collect(pages(partial(table.scan, None, "p", select=select))))

    found = [(row.partition_key, row.row_key) for row in (*first.rows, *second.rows)]
    assert found == [(key, row_key) for key in partition_keys for row_key in row_keys]
    assert len(first.rows) == PAGE_SIZE
    assert {row.properties["N"] for row in first.rows} == {1}
