from __future__ import annotations

import pytest

from eventstore import PAGE_SIZE, Operation

MANY = 2 * PAGE_SIZE + 30


def insert_all(run, table, partition_key, row_keys, properties=None):
    for start in range(0, len(row_keys), 100):
        batch = [Operation.insert(key, properties or {"K": key}) for key in row_keys[start : start + 100]]
        run(table.transact(partition_key, batch))


def keys(page):
    return [row.row_key for row in page.rows]


def test_a_range_has_both_its_ends(run, table):
    insert_all(run, table, "p", ["a", "b", "c", "d"])

    assert keys(run(table.query("p", "b", "c"))) == ["b", "c"]
    assert keys(run(table.query("p", "b", "b"))) == ["b"]
    assert keys(run(table.query("p", "aa", "cc"))) == ["b", "c"]
    assert keys(run(table.query("p", "x", "z"))) == []
    assert keys(run(table.query("p", "c", "b"))) == []
    assert keys(run(table.query("nowhere", "a", "z"))) == []


def test_rows_come_in_the_order_of_their_ascii_keys(run, table):
    ordered = [
        "!",
        "(",
        "+",
        "-",
        ".",
        "0",
        "9",
        ":",
        "A",
        "SS-HEAD",
        "SS-SE-0000000001",
        "Z",
        "_",
        "a",
        "z",
        "|",
        "}",
    ]
    insert_all(run, table, "p", ordered[::-1])

    assert keys(run(table.query("p", "", "~"))) == ordered


def test_a_row_that_is_not_there_is_none(run, table):
    insert_all(run, table, "p", ["a"])

    assert run(table.get("p", "b")) is None
    assert run(table.get("q", "a")) is None


@pytest.fixture(scope="module")
def many_keys():
    return [f"r{number:05d}" for number in range(MANY)]


def test_more_rows_than_a_page_come_in_pages(run, table, many_keys):
    insert_all(run, table, "p", many_keys)
    insert_all(run, table, "q", ["r00001"])

    pages, continuation = [], None
    while True:
        page = run(table.query("p", "r00005", "r99999", select=["K"], continuation=continuation))
        pages.append(page)
        continuation = page.continuation
        if continuation is None:
            break

    assert [len(page.rows) for page in pages] == [PAGE_SIZE, PAGE_SIZE, MANY - 5 - 2 * PAGE_SIZE]
    assert [key for page in pages for key in keys(page)] == many_keys[5:]
    assert pages[1].rows[0].properties == {"K": many_keys[5 + PAGE_SIZE]}


def test_a_full_page_at_the_end_has_no_continuation(run, table, many_keys):
    insert_all(run, table, "p", many_keys[:PAGE_SIZE])

    page = run(table.query("p", "", "s"))

    assert len(page.rows) == PAGE_SIZE
    assert page.continuation is None


def test_a_row_inserted_between_two_pages_appears_in_the_second(run, table, many_keys):
    insert_all(run, table, "p", many_keys[: PAGE_SIZE + 5])
    first = run(table.query("p", "", "s"))
    insert_all(run, table, "p", ["r00000a", "r01003a"])

    second = run(table.query("p", "", "s", continuation=first.continuation))

    assert keys(second) == ["r01000", "r01001", "r01002", "r01003", "r01003a", "r01004"]
