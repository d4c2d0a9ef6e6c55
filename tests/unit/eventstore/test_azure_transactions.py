from __future__ import annotations

import json

import pytest

from eventstore import Operation
from eventstore.backends.azure.transactions import Refusal, TransactionWriter, etags_or_refusal, refusal


def body(*operations, is_cosmos=False):
    writer = TransactionWriter("https://acct.table.core.windows.net", "games", is_cosmos=is_cosmos)
    keys = [operation.row_key for operation in operations]
    return writer.body(
        "a b", keys, operations, [dict(operation.properties) for operation in operations]
    ).decode()


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


def test_cosmos_takes_a_merge_as_a_post():
    ((head, _),) = requests(body(Operation.merge("r", {}), is_cosmos=True))

    assert head.startswith("POST https://acct.table.core.windows.net/games(")
    assert "\r\nX-HTTP-Method: MERGE\r\n" in head


@pytest.mark.parametrize("etag", ["7", "none", 'W/"a"\r\nX-Evil: 1', 'W/"ä"', '"strong"'])
def test_an_etag_that_no_service_gave_cannot_match_nor_add_a_header(etag):
    ((head, _),) = requests(body(Operation.replace("r", {}, etag)))

    assert "If-Match: W/\"datetime'1601-01-01T00%3A00%3A00.0000000Z'\"" in head
    assert "Evil" not in head


def test_no_line_of_a_row_can_end_its_part():
    ((_, content),) = requests(body(Operation.insert("r", {"A": "x\r\n--changeset_eventstore--\r\n\u2028"})))

    assert json.loads(content.split("\r\n")[0])["A"] == "x\r\n--changeset_eventstore--\r\n\u2028"


ACCEPTED = (
    b"--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_1\r\n\r\n"
    b"--changesetresponse_1\r\nContent-Type: application/http\r\n\r\n"
    b'HTTP/1.1 204 No Content\r\nPreference-Applied: return-no-content\r\nETag: W/"one"\r\n\r\n\r\n'
    b"--changesetresponse_1\r\n\r\nHTTP/1.1 204 No Content\r\nDataServiceVersion: 1.0;\r\n\r\n\r\n"
    b"--changesetresponse_1--\r\n--batchresponse_1--\r\n"
)


def refused(status, code, message):
    error = json.dumps({"odata.error": {"code": code, "message": {"lang": "en-US", "value": message}}})
    return (
        f"--changesetresponse_1\r\n\r\nHTTP/1.1 {status} Conflict\r\nContent-Type: application/json\r\n\r\n{error}\r\n"
        "--changesetresponse_1--\r\n"
    ).encode()


def test_the_answer_has_an_etag_for_each_row_that_was_not_deleted():
    assert etags_or_refusal(ACCEPTED, 2) == ('W/"one"', "")


def test_a_refusal_names_the_operation():
    answer = refused(409, "EntityAlreadyExists", "12:The specified entity already exists.\nRequestId:1")

    assert etags_or_refusal(answer, 20) == Refusal(409, "EntityAlreadyExists", 12)


def test_a_refusal_without_an_index_is_of_the_whole():
    assert etags_or_refusal(refused(400, "InvalidInput", "Bad"), 2) == Refusal(400, "InvalidInput")


def test_an_answer_that_breaks_off_is_no_success():
    assert etags_or_refusal(ACCEPTED[: len(ACCEPTED) // 2], 2) == Refusal(500, "IncompleteAnswer")
    assert etags_or_refusal(b"", 1) == Refusal(500, "IncompleteAnswer")


@pytest.mark.parametrize(
    "text", [b"", b"<html>", b"{}", b'{"odata.error": 1}', b'{"odata.error": {"code": "x"}}']
)
def test_an_error_that_cannot_be_read_keeps_its_status(text):
    assert refusal(502, text) == Refusal(502, "")
