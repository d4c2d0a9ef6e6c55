"""Rows and transactions as the table service reads them."""

import json
import sys
import types
from datetime import UTC, datetime
from uuid import UUID

import pytest
from azure.core.exceptions import ClientAuthenticationError

from eventstore import Int64, Operation, StoreUrlError, connect
from eventstore.backends.azure import (
    AzureStore,
    AzureTable,
    Refusal,
    decode,
    encode,
    refusal,
    transaction,
)
from tests.support import table_service


def entity(**properties):
    return {**table_service.entity("r"), **properties}


def test_a_row_is_encoded_with_the_types_that_json_lacks():
    text = encode(
        "p~2F",
        "r",
        {
            "A": "x",
            "B": 1,
            "C": True,
            "D": Int64(2),
            "E": 1.5,
            "F": datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
            "G": UUID(int=1),
            "H": b"\x00\xff",
            "I": float("inf"),
        },
    )

    assert json.loads(text) == {
        "PartitionKey": "p~2F",
        "RowKey": "r",
        "A": "x",
        "B": 1,
        "C": True,
        "D": "2",
        "D@odata.type": "Edm.Int64",
        "E": 1.5,
        "E@odata.type": "Edm.Double",
        "F": "2024-01-02T03:04:05.000006Z",
        "F@odata.type": "Edm.DateTime",
        "G": "00000000-0000-0000-0000-000000000001",
        "G@odata.type": "Edm.Guid",
        "H": "AP8=",
        "H@odata.type": "Edm.Binary",
        "I": "Infinity",
        "I@odata.type": "Edm.Double",
    }


def test_no_line_of_a_row_can_end_its_part():
    line = "ß\u2028\u2029\nx\r\n--changeset_eventstore--\r\n\u2028"
    text = encode("p", "r", {"A": line})
    ((_, content),) = requests(body(Operation.insert("r", {"A": line})))

    assert "ß" in text
    assert not {"\u2028", "\u2029", "\n"} & set(text)
    assert json.loads(text)["A"] == json.loads(content.split("\r\n")[0])["A"] == line


@pytest.mark.parametrize(
    ("type_name", "text", "value"),
    [
        ("Edm.DateTime", "2024-01-02T03:04:05.1234567Z", datetime(2024, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
        ("Edm.DateTime", "2024-01-02T03:04:05Z", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("Edm.Double", 1, 1.0),
    ],
)
def test_a_value_is_decoded_by_its_type(type_name, text, value):
    properties = decode({**entity(A=text, B=None), "A@odata.type": type_name, "odata.id": "y"}).properties

    assert {name: (type(found), found) for name, found in properties.items()} == {"A": (type(value), value)}


def test_keys_are_unescaped_and_an_etag_that_is_left_out_is_made_of_the_timestamp():
    found = decode(entity(PartitionKey="a~2Fb", RowKey="~u2028"))
    without = entity(Timestamp="2024-01-02T03:04:05.1234567Z")
    del without["odata.etag"]

    assert (found.partition_key, found.row_key, found.etag) == ("a/b", "\u2028", 'W/"e"')
    assert decode(without).etag == "W/\"datetime'2024-01-02T03%3A04%3A05.1234567Z'\""


def body(*operations, is_cosmos=False):
    url = "https://acct.table.core.windows.net/games"
    keys = [operation.row_key for operation in operations]
    prepared = [dict(operation.properties) for operation in operations]
    return transaction(url, "a b", keys, operations, prepared, is_cosmos=is_cosmos).decode()


def requests(text):
    return [part.split("\r\n\r\n", 2)[1:] for part in text.split("--changeset_eventstore\r\n")[1:]]


@pytest.mark.parametrize(
    ("operation", "line", "condition"),
    [
        (Operation.insert("r", {}), "POST https://acct.table.core.windows.net/games HTTP/1.1", None),
        (Operation.replace("r", {}, 'W/"e"'), "PUT {row} HTTP/1.1", 'W/"e"'),
        (Operation.replace("r", {}), "PUT {row} HTTP/1.1", "*"),
        (Operation.merge("r", {}, 'W/"e"'), "PATCH {row} HTTP/1.1", 'W/"e"'),
        (Operation.insert_or_replace("r", {}), "PUT {row} HTTP/1.1", None),
        (Operation.insert_or_merge("r", {}), "PATCH {row} HTTP/1.1", None),
        (Operation.delete("r", 'W/"e"'), "DELETE {row} HTTP/1.1", 'W/"e"'),
    ],
)
def test_each_verb_is_the_request_that_the_service_documents(operation, line, condition):
    ((head, content),) = requests(body(operation))

    row = "https://acct.table.core.windows.net/games(PartitionKey='a%20b',RowKey='r')"
    first, *headers = head.split("\r\n")
    assert first == line.format(row=row)
    assert [header for header in headers if header.startswith("If-Match")] == (
        [f"If-Match: {condition}"] if condition else []
    )
    assert content.startswith("{") == (operation.verb.value != "delete")
    if line.startswith("PATCH"):
        ((head, _),) = requests(body(operation, is_cosmos=True))
        assert head.startswith("POST https://acct.table.core.windows.net/games(")
        assert "\r\nX-HTTP-Method: MERGE\r\n" in head


@pytest.mark.parametrize("etag", ["7", "none", 'W/"a"\r\nX-Evil: 1', 'W/"ä"', '"strong"'])
def test_an_etag_that_no_service_gave_cannot_match_nor_add_a_header(etag):
    ((head, _),) = requests(body(Operation.replace("r", {}, etag)))

    assert "If-Match: W/\"datetime'1601-01-01T00%3A00%3A00.0000000Z'\"" in head
    assert "Evil" not in head


@pytest.mark.parametrize(
    "text", [b"", b"<html>", b"{}", b'{"odata.error": 1}', b'{"odata.error": {"code": "x"}}']
)
def test_an_error_that_cannot_be_read_keeps_its_status(text):
    assert refusal(502, text) == Refusal(502, "")


class Credential:
    """Stands for azure-identity's default credential on a machine where nobody is signed in."""

    def __init__(self) -> None:
        self.scopes: tuple[str, ...] = ()
        self.is_closed = False

    async def get_token(self, *scopes, **_options):
        self.scopes = scopes
        raise ClientAuthenticationError(message="DefaultAzureCredential failed: s3cr3t details")

    async def close(self):
        self.is_closed = True


@pytest.fixture
def credential(monkeypatch):
    credential = Credential()
    module = types.ModuleType("azure.identity.aio")
    module.DefaultAzureCredential = lambda: credential  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "azure.identity", types.ModuleType("azure.identity"))
    monkeypatch.setitem(sys.modules, "azure.identity.aio", module)
    monkeypatch.setattr("eventstore.backends.azure._has_identity", lambda: True)
    return credential


@pytest.mark.parametrize(
    ("url", "scope"),
    [
        ("https://acct.table.core.windows.net", "https://storage.azure.com/.default"),
        ("https://acct.table.cosmos.azure.com", "https://cosmos.azure.com/.default"),
    ],
)
def test_a_failed_sign_in_is_an_error_without_details(run, credential, url, scope):
    async def read():
        async with connect(url) as store:
            assert isinstance(store, AzureStore)
            await AzureTable(store, "games").get("p", "r")

    with pytest.raises(StoreUrlError, match="authentication failed") as raised:
        run(read())

    assert credential.scopes == (scope,)
    assert credential.is_closed
    assert "s3cr3t" not in str(raised.value)
    assert raised.value.__cause__ is None
