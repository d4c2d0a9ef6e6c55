"""What the Azure backend makes of failures, played by a small HTTP server on this machine."""

from __future__ import annotations

import asyncio
import base64
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from eventstore import (
    EventStoreError,
    InvalidKeyError,
    Operation,
    PayloadTooLargeError,
    RowChangedError,
    RowExistsError,
    RowNotFoundError,
    StoreUnavailableError,
    StoreUrlError,
    TableNotFoundError,
    connect,
)
from eventstore.backends.azure import AzureStore, client
from eventstore.backends.azure.store import AzureTable
from tests.support.table_service import (
    ACCEPTED,
    CREATED,
    HANG_UP,
    WRITTEN,
    Answer,
    Service,
    broken_off,
    entity,
    error,
    refused,
    rows,
    served,
)

KEY = base64.b64encode(b"a secret key").decode()
SIGNATURE = "sv=2019-02-02&sp=raud&sig=c2VjcmV0c2lnbmF0dXJl"


@pytest.fixture
def service(run, monkeypatch) -> Iterator[Service]:
    monkeypatch.setattr(client, "_BACKOFF_SECONDS", 0)
    with served(Service(), run) as service:
        yield service


@pytest.fixture(params=["shared key", "signature"])
def store(run, service, request) -> Iterator[AzureStore]:
    endpoint = f"TableEndpoint=http://127.0.0.1:{service.port}/acct"
    secrets = {
        "shared key": f"AccountName=acct;AccountKey={KEY}",
        "signature": f"SharedAccessSignature={SIGNATURE}",
    }
    store = connect(f"{endpoint};{secrets[request.param]}")
    assert isinstance(store, AzureStore)
    yield store
    run(store.close())


@pytest.fixture
def table(store) -> AzureTable:
    return AzureTable(store, "games")


@dataclass(frozen=True)
class Writing:
    """A kind of transaction: what is written, and how the service says that it was, or was not."""

    operations: tuple[Operation, ...]
    etags: tuple[str, ...]
    accepted: Answer
    refused: Callable[[int, str], Answer]

    def __call__(self, run: Callable[[Any], Any], table: AzureTable) -> tuple[str, ...]:
        etags: tuple[str, ...] = run(table.transact("p", self.operations))
        return etags


ETAG = 'W/"one"'
INSERT = Writing((Operation.insert("r", {"V": 1}),), (ETAG,), WRITTEN, error)
WRITINGS = {
    "insert": INSERT,
    "replace": Writing((Operation.replace("r", {"V": 1}, ETAG),), (ETAG,), ACCEPTED, refused),
    "merge": Writing((Operation.merge("r", {"V": 1}, ETAG),), (ETAG,), WRITTEN, error),
    "delete": Writing((Operation.delete("r", ETAG),), (ETAG,), ACCEPTED, refused),
    "without a condition": Writing((Operation.merge("r", {"V": 1}),), (ETAG,), ACCEPTED, refused),
    "several": Writing(
        (Operation.insert("r", {"V": 1}), Operation.insert("s", {"V": 1})),
        (ETAG, ETAG),
        (202, {}, 2 * b'HTTP/1.1 204 No Content\r\nETag: W/"one"\r\n\r\n\r\n'),
        refused,
    ),
}


@pytest.fixture(params=["insert", "merge", "replace", "several"])
def write(request) -> Writing:
    """Give a transaction that is sent as a request for a row, or one that is not."""
    return WRITINGS[request.param]


def read(run, table):
    return run(table.query("p", "a", "z"))


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("insert", "POST /acct/games"),
        ("replace", "POST /acct/$batch"),
        ("merge", "PATCH /acct/games(PartitionKey='p',RowKey='r')"),
        ("delete", "POST /acct/$batch"),
        ("without a condition", "POST /acct/$batch"),
        ("several", "POST /acct/$batch"),
    ],
)
def test_a_transaction_is_one_request(run, service, table, kind, line):
    write = WRITINGS[kind]
    service.answers = [write.accepted]

    assert write(run, table) == write.etags
    ((asked, headers),) = service.requests
    assert asked.split("?")[0].split(" HTTP")[0] == line
    assert headers["content-type"].startswith("multipart/mixed" if "$batch" in line else "application/json")
    assert headers.get("if-match") == (ETAG if kind == "merge" else None)


@pytest.mark.parametrize(
    "properties", [{"V": b"x" * 60_000, **{f"P{n}": b"x" * 60_000 for n in range(4)}}, {"V": "ü"}]
)
def test_a_row_that_is_large_or_not_ascii_is_sent_in_a_transaction(run, service, table, properties):
    service.answers = [ACCEPTED]

    run(table.transact("p", [Operation.insert("r", properties)]))

    assert service.requests[0][0].startswith("POST /acct/$batch")


@pytest.mark.parametrize("kind", ["insert", "merge"])
@pytest.mark.parametrize(
    ("code", "status", "kind_of_error"),
    [
        ("EntityAlreadyExists", 409, RowExistsError),
        ("UpdateConditionNotSatisfied", 412, RowChangedError),
        ("ResourceNotFound", 404, RowNotFoundError),
    ],
)
def test_a_row_that_is_refused_at_once_is_a_conflict(run, service, table, kind, code, status, kind_of_error):
    service.answers = [error(status, code, "No.")]

    with pytest.raises(kind_of_error) as raised:
        WRITINGS[kind](run, table)

    assert (raised.value.row_key, raised.value.index) == ("r", 0)


@pytest.mark.parametrize(
    "failure", [error(500, "InternalError"), error(503, "ServerBusy"), error(504, "Gateway")]
)
def test_a_transaction_is_repeated_when_the_service_is_busy(run, service, table, failure, write):
    service.answers = [failure, failure, write.accepted]

    assert write(run, table) == write.etags
    assert len(service.requests) == 3


def test_a_transaction_is_repeated_when_the_service_says_when_to_come_again(run, service, table, write):
    status, headers, body = error(429, "TooManyRequests")
    service.answers = [(status, {**headers, "Retry-After": "0.2"}, body), write.accepted]
    start = time.monotonic()

    assert write(run, table) == write.etags
    assert time.monotonic() - start >= 0.2
    assert len(service.requests) == 2


def test_a_large_transaction_is_repeated_whole(run, service, table):
    rows = [Operation.insert("r", {f"P{number}": b"x" * 60_000 for number in range(15)})]
    rows += [Operation.insert("s", {f"P{number}": b"x" * 60_000 for number in range(15)})]
    service.answers = [error(503, "ServerBusy"), error(500, "InternalError"), refused(400, "InvalidInput")]

    with pytest.raises(EventStoreError, match="InvalidInput"):
        run(table.transact("p", rows))

    first, second, third = (int(headers["content-length"]) for _, headers in service.requests)
    assert first == second == third > 2_000_000


@pytest.mark.parametrize("code", ["EntityAlreadyExists", "UpdateConditionNotSatisfied", "ResourceNotFound"])
def test_a_repeated_transaction_that_is_refused_may_have_met_itself(run, service, table, code, write):
    service.answers = [error(503, "ServerBusy"), write.refused(409, code)]

    with pytest.raises(StoreUnavailableError, match="may have been carried out") as raised:
        write(run, table)

    assert raised.value.outcome_unknown


def test_a_transaction_that_is_refused_at_once_is_a_conflict(run, service, table):
    service.answers = [refused(409, "EntityAlreadyExists", "1:There.")]

    with pytest.raises(RowExistsError) as raised:
        WRITINGS["several"](run, table)

    assert (raised.value.row_key, raised.value.index) == ("s", 1)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_service_that_stays_busy_is_unavailable(run, service, table, status, write):
    service.answers = [error(status, "Busy")] * 10

    with pytest.raises(StoreUnavailableError, match=str(status)) as raised:
        write(run, table)
    assert raised.value.outcome_unknown

    with pytest.raises(StoreUnavailableError, match=str(status)) as raised:
        read(run, table)
    assert not raised.value.outcome_unknown


def test_a_lost_answer_to_a_transaction_is_not_repeated_and_its_outcome_unknown(run, service, table, write):
    service.answers = [HANG_UP]

    with pytest.raises(StoreUnavailableError, match="did not answer") as raised:
        write(run, table)

    assert raised.value.outcome_unknown
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((202, {}, b"--c\r\n\r\nHTTP/1.1 204 No"), "IncompleteAnswer"),
        (broken_off(ACCEPTED), "did not answer"),
    ],
)
def test_an_answer_that_breaks_off_has_an_unknown_outcome(run, service, table, answer, told):
    service.answers = [answer]

    with pytest.raises(StoreUnavailableError, match=told) as raised:
        WRITINGS["several"](run, table)

    assert raised.value.outcome_unknown
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    "failure",
    [HANG_UP, error(500, "InternalError"), error(503, "ServerBusy"), broken_off(rows(entity("r")))],
)
def test_a_read_is_repeated(run, service, table, failure):
    service.answers = [failure, failure, rows(entity("r"))]

    assert [row.row_key for row in read(run, table).rows] == ["r"]


def test_an_empty_page_can_have_a_continuation(run, service, table):
    service.answers = [rows(NextPartitionKey="p+/=", NextRowKey="r"), rows(entity("r"))]

    first = read(run, table)
    second = run(table.query("p", "a", "z", continuation=first.continuation))

    assert first.rows == ()
    assert first.continuation is not None
    assert [row.row_key for row in second.rows] == ["r"]
    assert "NextPartitionKey=p%2B/%3D&NextRowKey=r" in service.requests[1][0]
    assert second.continuation is None


def test_a_redirection_is_not_followed(run, service, table, write):
    there = f"http://127.0.0.1:{service.port}/other"
    service.answers = [(307, {"Location": there}, b""), (307, {"Location": there}, b"")]

    for act in (read, write):
        with pytest.raises(EventStoreError, match="307"):
            act(run, table)
    assert len(service.requests) == 2


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_said_to_be(run, service, table, status, write):
    service.answers = [error(status, "AuthenticationFailed")] * 3

    for act in (write, read):
        with pytest.raises(StoreUrlError, match=f"credentials .{status} AuthenticationFailed"):
            act(run, table)


@pytest.mark.parametrize(
    "code", ["EntityTooLarge", "PropertyValueTooLarge", "RequestBodyTooLarge", "TooManyProperties"]
)
def test_what_the_service_finds_too_large_is_said_to_be(run, service, table, code, write):
    service.answers = [write.refused(400, code), error(413, code)]

    for _ in range(2):
        with pytest.raises(PayloadTooLargeError, match=code):
            write(run, table)


def test_a_table_that_was_deleted_is_said_to_be(run, service, table, write):
    service.answers = [error(404, "TableNotFound"), write.refused(404, "TableNotFound")]

    for act in (read, write):
        with pytest.raises(TableNotFoundError, match="There is no table"):
            act(run, table)


def test_another_refusal_is_an_error_of_the_store(run, service, table, write):
    service.answers = [error(400, "InvalidInput"), write.refused(400, "InvalidInput")]

    for act in (read, write):
        with pytest.raises(EventStoreError, match="InvalidInput"):
            act(run, table)


def test_a_table_that_is_there_is_opened(run, service, store):
    service.answers = [error(409, "TableAlreadyExists"), CREATED]

    run(store.table("games"))
    run(store.table("games"))


def test_making_a_table_leaves_how_failures_are_repeated(run, service, store, write):
    service.answers = [error(503, "ServerBusy"), CREATED, broken_off(rows()), rows(), HANG_UP]

    table = run(store.table("games"))
    read(run, table)
    with pytest.raises(StoreUnavailableError):
        write(run, table)

    assert len(service.requests) == 5


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (HANG_UP, StoreUnavailableError),
        (error(503, "ServerBusy"), StoreUnavailableError),
        ((503, {"Content-Type": "image/gif"}, b"GIF"), StoreUnavailableError),
        (error(400, "InvalidInput"), EventStoreError),
        ((400, {"Content-Type": "text/html"}, b"<html>"), EventStoreError),
    ],
)
def test_a_table_that_cannot_be_made_is_said_to_be(run, service, store, answer, error):
    service.answers = [answer] * 4

    with pytest.raises(EventStoreError) as raised:
        run(store.table("games"))

    assert type(raised.value) is error


def test_a_table_that_is_being_deleted_is_unavailable(run, service, store):
    service.answers = [error(409, "TableBeingDeleted")]

    with pytest.raises(StoreUnavailableError, match="being deleted"):
        run(store.table("games"))


def test_a_signature_that_may_not_make_tables_can_open_one(run, service, store):
    service.answers = [error(403, "AuthorizationPermissionMismatch"), rows()]

    run(store.table("games"))

    service.answers = [error(403, "AuthorizationFailure"), error(403, "AuthorizationFailure")]
    with pytest.raises(StoreUrlError, match="AuthorizationFailure"):
        run(store.table("games"))


def test_a_service_that_is_not_there_is_unavailable_and_wrote_nothing(run):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        store = connect(f"azurite://127.0.0.1:{unused.getsockname()[1]}")
        assert isinstance(store, AzureStore)

        with pytest.raises(StoreUnavailableError, match="ClientConnectorError") as raised:
            INSERT(run, AzureTable(store, "games"))

    assert not raised.value.outcome_unknown
    run(store.close())


def test_limits_are_checked_before_anything_is_sent(run, service, table):
    for operations, kind in [
        ([Operation.insert("r", {"V": b"x" * 65537})], PayloadTooLargeError),
        ([Operation.insert(f"r{number}", {}) for number in range(101)], PayloadTooLargeError),
        ([Operation.insert("", {})], InvalidKeyError),
        ([Operation.insert("r", {"V": 2**31})], ValueError),
    ]:
        with pytest.raises(kind):
            run(table.transact("p", operations))

    assert service.requests == []


def test_a_store_has_a_client_for_each_event_loop(service, store, table, run, write):
    service.answers = [write.accepted]
    write(run, table)
    first = run(current(store))

    with asyncio.Runner() as other:
        second = other.run(current(store))
        assert second is not first
        other.run(store.close())

    assert run(current(store)) is first


async def current(store):
    return store.client()
