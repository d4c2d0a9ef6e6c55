from __future__ import annotations

import asyncio

from eventstore import PAGE_SIZE, Operation


def make(run, table, partition_keys):
    for key in partition_keys:
        run(
            table.transact(
                key, [Operation.insert("head", {"K": key, "L": b"x" * 600}), Operation.insert("x", {})]
            )
        )


def scanned(page):
    return [row.partition_key for row in page.rows]


def test_a_scan_finds_one_row_of_each_partition(run, table):
    make(run, table, ["c", "a/1", "b"])
    run(table.transact("no-head", [Operation.insert("x", {})]))

    rows = run(table.scan("head")).rows

    assert [(row.partition_key, row.row_key, row.properties["K"]) for row in rows] == [
        ("a/1", "head", "a/1"),
        ("b", "head", "b"),
        ("c", "head", "c"),
    ]
    assert rows[1].etag == run(table.get("b", "head")).etag


def test_a_scan_has_both_its_ends(run, table):
    make(run, table, ["a", "b", "c", "d"])

    assert scanned(run(table.scan("head", "b", "c"))) == ["b", "c"]
    assert scanned(run(table.scan("head", "b"))) == ["b", "c", "d"]
    assert scanned(run(table.scan("head", last="b"))) == ["a", "b"]
    assert scanned(run(table.scan("head", "b", "b"))) == ["b"]
    assert scanned(run(table.scan("missing"))) == []


def test_a_scan_reads_only_the_properties_named(run, table):
    make(run, table, ["a"])

    assert [row.properties for row in run(table.scan("head", select=["K"])).rows] == [{"K": "a"}]
    assert [row.properties for row in run(table.scan("head", select=[])).rows] == [{}]


def test_a_scan_of_an_empty_table_finds_nothing(run, table):
    page = run(table.scan("head"))

    assert (page.rows, page.continuation) == ((), None)


def test_a_scan_of_many_partitions_comes_in_pages(run, table):
    partition_keys = [f"p{number:05d}" for number in range(PAGE_SIZE + 20)]

    async def make_all():
        inserts = [table.transact(key, [Operation.insert("head", {})]) for key in partition_keys]
        await asyncio.gather(*inserts)

    run(make_all())

    first = run(table.scan("head", "p00003"))
    second = run(table.scan("head", "p00003", continuation=first.continuation))

    assert scanned(first) + scanned(second) == partition_keys[3:]
    assert second.continuation is None


def test_a_scan_without_a_row_key_finds_all_rows(run, table):
    make(run, table, ["c", "a/1", "b", "d"])

    rows = run(table.scan(None, "a/1", "c", select=["K"])).rows

    assert [(row.partition_key, row.row_key, row.properties) for row in rows] == [
        (key, row_key, {"K": key} if row_key == "head" else {})
        for key in ("a/1", "b", "c")
        for row_key in ("head", "x")
    ]
    assert rows[0].etag == run(table.get("a/1", "head")).etag


def test_a_scan_of_all_rows_comes_in_pages_that_end_anywhere(run, table):
    in_each = 40
    partition_keys = [f"p{number:02d}" for number in range(PAGE_SIZE // in_each + 2)]
    row_keys = [f"r/{number:02d}" for number in range(in_each)]
    run(table.transact("o", [Operation.insert("r", {})]))
    for key in partition_keys:
        run(table.transact(key, [Operation.insert(row_key, {"N": 1}) for row_key in row_keys]))

    first = run(table.scan(None, "p"))
    second = run(table.scan(None, "p", continuation=first.continuation))

    found = [(row.partition_key, row.row_key) for row in (*first.rows, *second.rows)]
    assert found == [(key, row_key) for key in partition_keys for row_key in row_keys]
    assert len(first.rows) == PAGE_SIZE
    assert second.continuation is None
    assert {row.properties["N"] for row in first.rows} == {1}
