"""Ranges, scans and point reads of a table."""

from __future__ import annotations

import asyncio
import base64
from urllib.parse import unquote

import pytest

from eventstore import PAGE_SIZE, Operation, Partition, Stream, TableNotFoundError, connect
from eventstore.backends.azure.store import AzureStore, AzureTable
from tests.support.table_service import Service, entity, error, row, served

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


KEY = base64.b64encode(b"a secret key").decode()
READS = {
    "get": lambda table: table.get("p", "SS-HEAD"),
    "query of one row": lambda table: table.query("p", "SS-HEAD", "SS-HEAD"),
    "open": lambda table: Stream.open(Partition(table, "p")),
    "exists": lambda table: Stream.exists(Partition(table, "p")),
    "read backwards": lambda table: Stream.read_backwards(Partition(table, "p")),
    "read from a later version": lambda table: Stream.read(Partition(table, "p"), 2),
    "read of properties": lambda table: Stream.read(Partition(table, "p"), 2, select=[], header=["P"]),
}


@pytest.fixture
def service(run):
    with served(Service(), run) as service:
        yield service


@pytest.fixture
def azure_table(run, service):
    store = connect(f"TableEndpoint=http://127.0.0.1:{service.port}/acct;AccountName=acct;AccountKey={KEY}")
    assert isinstance(store, AzureStore)
    yield AzureTable(store, "games")
    run(store.close())


@pytest.mark.parametrize("name", READS)
def test_a_header_is_read_by_its_keys(run, service, azure_table, name):
    service.answers = [row({**entity("SS-HEAD"), "Version": 0, "P": 1})]

    run(READS[name](azure_table))

    (line, _headers), *more = service.requests
    assert line.startswith("GET /acct/games(PartitionKey='p',RowKey='SS-HEAD')")
    assert more == []


def test_only_what_is_selected_is_asked_for(run, service, azure_table):
    service.answers = [row(entity("r"))] * 2

    run(azure_table.query("p", "r", "r", select=["A", "no, name"]))
    run(azure_table.get("p", "r"))

    assert [unquote(line.split(" ")[1]).partition("?")[2] for line, _headers in service.requests] == [
        "$select=PartitionKey,RowKey,Timestamp,A",
        "",
    ]


def test_a_row_and_a_table_that_are_not_there_are_told_apart(run, service, azure_table):
    service.answers = [
        error(404, "ResourceNotFound"),
        error(404, "ResourceNotFound"),
        error(404, "TableNotFound"),
    ]

    assert run(azure_table.get("p", "r")) is None
    assert run(azure_table.query("p", "r", "r")).rows == ()
    with pytest.raises(TableNotFoundError):
        run(azure_table.get("p", "r"))


def test_a_range_of_one_row_gives_that_row(run, table):
    keys = ["a", "b/c", "d e+f", "g(h)='i'", "%25", "ü|~"]
    run(table.transact("p q/'r'", [Operation.insert(key, {"N": 1, "M": 2}) for key in keys]))

    for key in keys:
        found = run(table.get("p q/'r'", key))
        assert (found.partition_key, found.row_key, found.properties) == ("p q/'r'", key, {"N": 1, "M": 2})
        assert run(table.query("p q/'r'", key, key)).rows == (found,)
        (selected,) = run(table.query("p q/'r'", key, key, select=["M"])).rows
        assert (selected.etag, selected.properties) == (found.etag, {"M": 2})
    assert run(table.query("p q/'r'", "z", "z")).rows == ()
    assert run(table.get("p q", "a")) is None
