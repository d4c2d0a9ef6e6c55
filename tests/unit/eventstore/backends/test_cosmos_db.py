r"""What Cosmos DB's Table API answers otherwise than Azure Storage, played by a small HTTP server on this machine.

The shapes are those of a Cosmos DB account: lines of the answer to a transaction that end with `\n` and others with
`\r\n`, `RequestID` for `RequestId`, no `x-ms-error-code`, 429 and no hint when to retry, continuations that are
JSON, rows in the order in which they were made.
"""

import json
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from eventstore import (
    EventStoreError,
    Operation,
    Partition,
    PayloadTooLargeError,
    RowChangedError,
    RowExistsError,
    RowNotFoundError,
    StoreUnavailableError,
    StoreUrlError,
    Stream,
    TableNotFoundError,
)
from eventstore.backends import azure
from eventstore.backends.azure import Account, AzureTable
from tests.support.table_service import Answer, Service, entity, served

JSON = {"Content-Type": "application/json; odata=minimalmetadata"}

EXISTS = "The specified entity already exists."
MISSING = "The specified resource does not exist."
CHANGED = "The update condition specified in the request was not satisfied."
TOO_FAST = (
    'Message: {"Errors":["Request rate is large. More Request Units may be needed, so no changes were made. '
    'Please retry this request later. Learn more: http://aka.ms/cosmosdb-error-429"]}\r\nActivityId: 1'
)
WRONG_KEY = "The input authorization token can't serve the request. The wrong key is being used."


def error(status, code, message) -> Answer:
    value = f"{message}\nRequestID:bdccbcab-6fa9-4b81-a44f-3152aa436100\n"
    text = json.dumps({"odata.error": {"code": code, "message": {"lang": "en-us", "value": value}}})
    return (status, JSON, f"{text}\r\n".encode())


def transaction(*parts: str) -> Answer:
    begin = "--changesetresponse_1\nContent-Type: application/http\nContent-Transfer-Encoding: binary\n\n"
    head = "--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_1\r\n\r\n"
    end = "--changesetresponse_1--\n--batchresponse_1--\r\n"
    text = head + "".join(f"{begin}HTTP/1.1 {part}" for part in parts) + end
    return (202, {"Content-Type": "multipart/mixed; boundary=batchresponse_1"}, text.encode())


def refused(status, code, message) -> Answer:
    text = error(status, code, message)[2].decode()
    return transaction(f"{status} No\r\nContent-Type: application/json;odata=fullmetadata\r\n\r\n{text}")


def changed(etag, number):
    return (
        f"204 No Content\r\nETag: {etag}\r\nPreference-Applied: return-no-content\r\n"
        f"Location: https://acct.table.cosmos.azure.com/games(PartitionKey='p',RowKey='r')\r\n"
        f"Content-ID: {number}\r\n\r\n\r\n"
    )


def page(*row_keys, continuation=None) -> Answer:
    entities = [
        {**entity(key), "odata.etag": etag(number), "Version": 2, "Timestamp": "2022-11-03"}
        for number, key in enumerate(row_keys)
    ]
    headers = {}
    if continuation:
        headers = {"x-ms-continuation-NextPartitionKey": continuation, "x-ms-continuation-NextRowKey": "NA"}
    return (200, {**JSON, **headers}, json.dumps({"value": entities}).encode())


def etag(number):
    return f"W/\"datetime'2022-11-03T17%3A57%3A26.136525{number}Z'\""


@pytest.fixture
def service(run, monkeypatch) -> Iterator[Service]:
    monkeypatch.setattr(azure, "_BACKOFF_SECONDS", 0)
    monkeypatch.setattr(Account, "is_cosmos", True)
    with served(Service(), run) as service:
        yield service


@pytest.fixture
def table(store_at, service) -> AzureTable:
    return AzureTable(store_at(service), "games")


def write(run, table, *operations):
    return run(table.transact("p", operations or [Operation.insert("a", {}), Operation.insert("b", {})]))


def read(run, table):
    return run(table.query("p", "a", "z"))


def test_a_transaction_gives_the_etags_and_none_for_what_was_deleted(run, service, table):
    service.answers = [
        transaction(changed(etag(1), 1), "204 No Content\r\nContent-ID: 2\r\n\r\n\r\n", changed(etag(3), 3))
    ]
    operations = [Operation.insert("a", {}), Operation.delete("b"), Operation.merge("c", {}, etag(0))]

    assert write(run, table, *operations) == (etag(1), "", etag(3))


@pytest.mark.parametrize(
    ("status", "code", "message", "error_type"),
    [
        (409, "EntityAlreadyExists", EXISTS, RowExistsError),
        (404, "ResourceNotFound", MISSING, RowNotFoundError),
        (412, "UpdateConditionNotSatisfied", CHANGED, RowChangedError),
    ],
)
@pytest.mark.parametrize("index", [0, 1])
def test_a_refused_row_is_the_one_named(run, service, table, status, code, message, error_type, index):
    service.answers = [refused(status, code, f"{index}:{message}\n")]

    with pytest.raises(error_type) as raised:
        write(run, table)

    assert (raised.value.row_key, raised.value.index) == ("ab"[index], index)


def test_a_missing_table_is_no_missing_row(run, service, table, monkeypatch):
    # Of a row in a transaction the message begins with the operation's number, of the table it does not.
    service.answers = [refused(404, "ResourceNotFound", MISSING), error(404, "ResourceNotFound", MISSING)]
    # Of a row that is read and of a table the same is said: it is asked for once more in its table.
    service.answers += [error(404, "ResourceNotFound", MISSING), page()] * 2
    service.answers += [error(404, "ResourceNotFound", MISSING)] * 2

    for act in (write, read):
        with pytest.raises(TableNotFoundError):
            act(run, table)
    assert run(table.get("p", "r")) is None
    assert run(table.query("p", "r", "r")).rows == ()
    with pytest.raises(TableNotFoundError):
        run(table.get("p", "r"))

    monkeypatch.setattr(Account, "is_cosmos", False)  # in Azure Storage a row need not be numbered
    service.answers = [refused(404, "ResourceNotFound", MISSING)]
    with pytest.raises(RowNotFoundError) as raised:
        write(run, table, Operation.delete("a"))
    assert (raised.value.row_key, raised.value.index) == ("a", 0)


def test_a_throttled_transaction_is_unavailable(run, service, table):
    service.answers = [
        error(429, "TooManyRequests", TOO_FAST),
        refused(429, "TooManyRequests", TOO_FAST),
        refused(429, "TooManyRequests", f"0:{TOO_FAST}"),
        refused(449, "RetryWith", "0:Conflicting request to resource has been attempted."),
        refused(408, "RequestTimeout", "0:Request timed out."),
        transaction("429 Too Many Requests\r\n\r\n"),
    ]

    for number in range(1, len(service.answers) + 1):
        with pytest.raises(StoreUnavailableError) as raised:
            write(run, table)
        assert raised.value.outcome_unknown
        # Nothing says when to retry: that is left to the caller.
        assert len(service.requests) == number


INVALID = "One of the input values is invalid.\r\nActivityId: 1, documentdb-dotnet-sdk/2.11.0"


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    ("status", "code", "message", "kind", "told"),
    [
        (401, "Unauthorized", WRONG_KEY, StoreUrlError, r"refused the credentials \(401"),
        (413, "RequestEntityTooLarge", "Too large", PayloadTooLargeError, "RequestEntityTooLarge"),
        (400, "InvalidInput", INVALID, EventStoreError, "InvalidInput"),
    ],
)
def test_other_refusals_are_said_to_be(run, service, table, inside, status, code, message, kind, told):
    service.answers = [refused(status, code, f"0:{message}") if inside else error(status, code, message)]

    with pytest.raises(kind, match=told) as raised:
        write(run, table)
    assert type(raised.value) is kind


def test_a_page_is_put_in_the_order_of_its_keys_and_its_continuation_comes_back_as_it_was_given(
    run, service, table
):
    keys = ["SS-SE-0000000002", "SS-HEAD", "SS-SE-0000000001"]
    token = '[{"token":"jHoxAKfRfT4CAA+/AA==","range":{"min":"","max":"FF"}}]'
    service.answers = [page(*keys, continuation=token), page(*keys), page(*keys)]

    first = read(run, table)
    second = run(table.query("p", "a", "z", continuation=first.continuation))

    assert [row.row_key for row in first.rows] == sorted(keys)
    assert second.continuation is None
    query = parse_qs(urlsplit(service.requests[1][0].split(" ")[1]).query)
    assert (query["NextPartitionKey"], query["NextRowKey"]) == ([token], ["NA"])
    assert query["$filter"] == ["PartitionKey eq 'p' and RowKey ge 'a' and RowKey le 'z'"]
    assert [event.version for event in run(Stream.read(Partition(table, "p"))).events] == [1, 2]
