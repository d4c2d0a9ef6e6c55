"""One row is asked for by its keys: a filter may let the service look through the whole table."""

from __future__ import annotations

import base64
from urllib.parse import unquote

import pytest

from eventstore import Operation, Partition, Stream, TableNotFoundError, connect
from eventstore.backends.azure.store import AzureStore, AzureTable
from tests.support.table_service import Service, entity, error, row, served

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
