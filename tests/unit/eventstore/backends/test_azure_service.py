"""What the Azure backend asks of a table service and makes of its answers, played by a small HTTP server."""

import asyncio
import base64
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

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
    connect,
)
from eventstore.backends import azure
from eventstore.backends.azure import AzureStore, AzureTable
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
    row,
    rows,
    served,
)

KEY = base64.b64encode(b"a secret key").decode()
SECRETS = {
    "shared key": f"AccountName=acct;AccountKey={KEY}",
    "signature": "SharedAccessSignature=sv=2019-02-02&sp=raud&sig=c2VjcmV0c2lnbmF0dXJl",
}
ETAG = 'W/"one"'


class TimedService(Service):
    """Notes when each request came."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []
        self.was_asked = asyncio.Event()

    def answer(self, request: str) -> Answer | None:
        self.times.append(time.monotonic())
        self.was_asked.set()
        return super().answer(request)


@pytest.fixture
def service(run, monkeypatch) -> Iterator[TimedService]:
    monkeypatch.setattr(azure, "_BACKOFF_SECONDS", 0)
    service = TimedService()
    with served(service, run):
        yield service


@contextmanager
def connected(run, port, secret=SECRETS["shared key"]) -> Iterator[AzureStore]:
    store = connect(f"TableEndpoint=http://127.0.0.1:{port}/acct;{secret}")
    assert isinstance(store, AzureStore)
    try:
        yield store
    finally:
        run(store.close())


@pytest.fixture(params=SECRETS)
def store(run, service, request) -> Iterator[AzureStore]:
    with connected(run, service.port, SECRETS[request.param]) as store:
        yield store


@pytest.fixture
def table(store) -> AzureTable:
    return AzureTable(store, "games")


@dataclass(frozen=True)
class Writing:
    """A kind of transaction: what is written, and how the service says that it was, or was not."""

    operations: tuple[Operation, ...]
    etags: tuple[str, ...]
    accepted: Answer
    refused: Callable[..., Answer]

    def __call__(self, run: Callable[[Any], Any], table: AzureTable) -> tuple[str, ...]:
        etags: tuple[str, ...] = run(table.transact("p", self.operations))
        return etags


WRITINGS = {
    "insert": Writing((Operation.insert("r", {"V": 1}),), (ETAG,), WRITTEN, error),
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
INSERT, SEVERAL = WRITINGS["insert"], WRITINGS["several"]


@pytest.fixture(params=["insert", "merge", "replace", "several"])
def write(request) -> Writing:
    """Give a transaction that is sent as a request for a row, or one that is not."""
    return WRITINGS[request.param]


def read(run, table):
    return run(table.query("p", "a", "z"))


# Requests.


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


@pytest.mark.parametrize("properties", [{f"P{n}": b"x" * 60_000 for n in range(5)}, {"V": "ü"}])
def test_a_row_that_is_large_or_not_ascii_is_sent_in_a_transaction(run, service, table, properties):
    service.answers = [ACCEPTED]

    run(table.transact("p", [Operation.insert("r", properties)]))

    assert service.requests[0][0].startswith("POST /acct/$batch")


@pytest.mark.parametrize(
    "read_header",
    [
        lambda table: table.get("p", "SS-HEAD"),
        lambda table: table.query("p", "SS-HEAD", "SS-HEAD"),
        lambda table: Stream.open(Partition(table, "p")),
        lambda table: Stream.exists(Partition(table, "p")),
        lambda table: Stream.read_backwards(Partition(table, "p")),
        lambda table: Stream.read(Partition(table, "p"), 2),
        lambda table: Stream.read(Partition(table, "p"), 2, select=[], header=["P"]),
    ],
)
def test_a_header_is_read_by_its_keys(run, service, table, read_header):
    service.answers = [row({**entity("SS-HEAD"), "Version": 0, "P": 1})]

    run(read_header(table))

    ((line, _headers),) = service.requests
    assert line.startswith("GET /acct/games(PartitionKey='p',RowKey='SS-HEAD')")


def test_only_what_is_selected_is_asked_for_and_an_empty_page_can_have_a_continuation(run, service, table):
    service.answers = [row(entity("r"))] * 2 + [
        rows(NextPartitionKey="p+/=", NextRowKey="r"),
        rows(entity("r")),
    ]

    run(table.query("p", "r", "r", select=["A", "no, name"]))
    run(table.get("p", "r"))
    first = read(run, table)
    second = run(table.query("p", "a", "z", continuation=first.continuation))

    selected, whole, _, following = [unquote(line) for line, _headers in service.requests]
    assert re.search(r"\?[$]select=PartitionKey,RowKey,Timestamp,A(&sv=\S*)? HTTP", selected)
    assert "select" not in whole
    assert (first.rows, [row.row_key for row in second.rows], second.continuation) == ((), ["r"], None)
    assert "NextPartitionKey=p+/=&NextRowKey=r" in following


# Refusals.


@pytest.mark.parametrize("kind", ["insert", "merge", "several"])
@pytest.mark.parametrize(
    ("code", "status", "kind_of_error"),
    [
        ("EntityAlreadyExists", 409, RowExistsError),
        ("UpdateConditionNotSatisfied", 412, RowChangedError),
        ("ResourceNotFound", 404, RowNotFoundError),
    ],
)
def test_a_row_that_is_refused_at_once_is_a_conflict(run, service, table, kind, code, status, kind_of_error):
    index = 1 if kind == "several" else 0
    service.answers = [WRITINGS[kind].refused(status, code, f"{index}:No.")]

    with pytest.raises(kind_of_error) as raised:
        WRITINGS[kind](run, table)

    assert (raised.value.row_key, raised.value.index) == ("rs"[index], index)


@pytest.mark.parametrize("code", ["EntityAlreadyExists", "UpdateConditionNotSatisfied", "ResourceNotFound"])
def test_a_repeated_transaction_that_is_refused_may_have_met_itself(run, service, table, code, write):
    service.answers = [error(503, "ServerBusy"), write.refused(409, code)]

    with pytest.raises(StoreUnavailableError, match="may have succeeded") as raised:
        write(run, table)

    assert raised.value.outcome_unknown


@pytest.mark.parametrize(
    ("status", "code", "kind", "told"),
    [
        (401, "AuthenticationFailed", StoreUrlError, "credentials .401 AuthenticationFailed"),
        (403, "AuthenticationFailed", StoreUrlError, "credentials .403 AuthenticationFailed"),
        (413, "RequestBodyTooLarge", PayloadTooLargeError, "RequestBodyTooLarge"),
        (404, "TableNotFound", TableNotFoundError, "There is no table games"),
        (400, "InvalidInput", EventStoreError, "InvalidInput"),
        (307, "TemporaryRedirect", EventStoreError, "TemporaryRedirect|307"),
    ],
)
def test_a_refusal_is_said_to_be(run, service, table, write, status, code, kind, told):
    """A redirection is one too: it is not followed."""
    code_, headers, body = error(status, code)
    service.answers = [(code_, {**headers, "Location": f"http://127.0.0.1:{service.port}/other"}, body)] * 2

    for act in (write, read):
        with pytest.raises(kind, match=told) as raised:
            act(run, table)
        assert type(raised.value) is kind
    assert len(service.requests) == 2
    for code_within, kind_within in (
        ("EntityTooLarge", PayloadTooLargeError),
        ("PropertyValueTooLarge", PayloadTooLargeError),
        ("TooManyProperties", PayloadTooLargeError),
        (code, EventStoreError if status in (401, 403, 307) else kind),
    ):
        service.answers = [write.refused(400, code_within)]
        with pytest.raises(EventStoreError) as raised:
            write(run, table)
        assert type(raised.value) is kind_within


def test_a_row_and_a_table_that_are_not_there_are_told_apart(run, service, table):
    service.answers = [error(404, "ResourceNotFound")] * 2 + [error(404, "TableNotFound")]

    assert run(table.get("p", "r")) is None
    assert run(table.query("p", "r", "r")).rows == ()
    with pytest.raises(TableNotFoundError):
        run(table.get("p", "r"))


# What is repeated, how long that waits, and what is left to the caller.

BUSY = [error(500, "InternalError"), error(503, "ServerBusy"), error(504, "Gateway")]


@pytest.mark.parametrize("failure", BUSY)
def test_a_transaction_is_repeated_when_the_service_is_busy(run, service, table, failure, write):
    service.answers = [failure, failure, write.accepted]

    assert write(run, table) == write.etags
    assert len(service.requests) == 3


@pytest.mark.parametrize("failure", [*BUSY, HANG_UP, broken_off(rows(entity("r")))])
def test_a_read_is_repeated(run, service, table, failure):
    service.answers = [failure, failure, rows(entity("r"))]

    assert [row.row_key for row in read(run, table).rows] == ["r"]


def test_a_large_transaction_is_repeated_whole(run, service, table):
    large = {f"P{number}": b"x" * 60_000 for number in range(15)}
    service.answers = [error(503, "ServerBusy"), error(500, "InternalError"), refused(400, "InvalidInput")]

    with pytest.raises(EventStoreError, match="InvalidInput"):
        run(table.transact("p", [Operation.insert("r", large), Operation.insert("s", large)]))

    first, second, third = (int(headers["content-length"]) for _, headers in service.requests)
    assert first == second == third > 2_000_000


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("told", [{}, {"Retry_After": "0"}])
def test_a_service_that_stays_busy_is_unavailable_and_not_asked_for_ever(
    run, service, table, status, told, write
):
    service.answers = [busy(status, **told)] * 10

    for act, is_unknown in ((write, True), (read, False)):
        service.times.clear()
        with pytest.raises(StoreUnavailableError, match=str(status)) as raised:
            act(run, table)
        assert raised.value.outcome_unknown == is_unknown
        assert not told or status not in (429, 503) or len(service.times) == 4


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (HANG_UP, "did not answer"),
        ((202, {}, b"--c\r\n\r\nHTTP/1.1 204 No"), "IncompleteAnswer"),
        (broken_off(ACCEPTED), "did not answer"),
    ],
)
def test_a_lost_answer_to_a_transaction_is_not_repeated_and_its_outcome_unknown(
    run, service, table, write, answer, told
):
    service.answers = [answer]

    with pytest.raises(StoreUnavailableError, match=told) as raised:
        (write if answer is HANG_UP else SEVERAL)(run, table)

    assert raised.value.outcome_unknown
    assert len(service.requests) == 1


def test_a_service_that_is_not_there_is_unavailable_and_wrote_nothing(run):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        store = connect(f"azurite://127.0.0.1:{unused.getsockname()[1]}")
        assert isinstance(store, AzureStore)
        with pytest.raises(StoreUnavailableError, match="ClientConnectorError") as raised:
            INSERT(run, AzureTable(store, "games"))

    assert not raised.value.outcome_unknown
    run(store.close())


def busy(status, **headers) -> Answer:
    status, own, body = error(status, "TooManyRequests")
    return (status, {**own, **{name.replace("_", "-"): value for name, value in headers.items()}}, body)


def make(run, table):
    return run(table._store.table("games"))


@pytest.mark.parametrize(
    ("call", "answers", "seconds"),
    [
        (read, [busy(429, Retry_After="1"), rows(entity("r"))], [1]),
        (read, [busy(503, Retry_After="0.3"), rows(entity("r"))], [0.3]),
        (read, [busy(429, x_ms_retry_after_ms="300"), rows()], [0.3]),
        (INSERT, [busy(503, Retry_After="0.3"), WRITTEN], [0.3]),
        (SEVERAL, [busy(429, Retry_After="0.3"), busy(503, Retry_After="0.2"), SEVERAL.accepted], [0.3, 0.2]),
        (make, [busy(429, Retry_After="0.3"), CREATED], [0.3]),
    ],
)
def test_a_call_waits_as_long_as_it_is_told_to_each_time(run, service, table, call, answers, seconds):
    service.answers = list(answers)

    call(run, table)

    waited = [after - before for before, after in zip(service.times, service.times[1:], strict=False)]
    assert len(waited) == len(seconds)
    assert all(had >= told for had, told in zip(waited, seconds, strict=True))


def test_a_transaction_that_is_one_too_many_is_left_to_the_caller_when_nothing_says_how_long(
    run, service, table, write
):
    service.answers = [busy(429)]

    with pytest.raises(StoreUnavailableError, match="429"):
        write(run, table)

    assert len(service.times) == 1


def test_one_call_that_waits_holds_up_no_other(run, service, table):
    service.answers = [busy(503, Retry_After="600"), rows(), rows()]

    async def calls():
        waiting = asyncio.create_task(table.query("p", "a", "z"))
        await service.was_asked.wait()
        await table.query("p", "a", "z")
        await table.query("p", "a", "z")
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])

    run(calls())

    assert len(service.times) == 3


# Making tables.


@pytest.mark.parametrize(
    ("answers", "kind", "told"),
    [
        ([CREATED], None, ""),
        ([error(409, "TableAlreadyExists")], None, ""),
        (
            [error(403, "AuthorizationPermissionMismatch"), rows()],
            None,
            "",
        ),  # may not make it, and can use it
        ([HANG_UP] * 4, StoreUnavailableError, "did not answer"),
        ([error(503, "ServerBusy")] * 4, StoreUnavailableError, "503"),
        ([(503, {"Content-Type": "image/gif"}, b"GIF")] * 4, StoreUnavailableError, "503"),
        ([error(409, "TableBeingDeleted")], StoreUnavailableError, "being deleted"),
        ([error(403, "AuthorizationFailure")] * 2, StoreUrlError, "AuthorizationFailure"),
        ([error(400, "InvalidInput")], EventStoreError, "InvalidInput"),
        ([(400, {"Content-Type": "text/html"}, b"<html>")], EventStoreError, "400"),
    ],
)
def test_a_table_is_opened_or_said_to_be_one_that_cannot_be_made(run, service, store, answers, kind, told):
    service.answers = list(answers)

    if kind is None:
        run(store.table("games"))
        assert service.answers == []
    else:
        with pytest.raises(EventStoreError, match=told) as raised:
            run(store.table("games"))
        assert type(raised.value) is kind


def test_making_a_table_leaves_how_failures_are_repeated(run, service, store, write):
    service.answers = [error(503, "ServerBusy"), CREATED, broken_off(rows()), rows(), HANG_UP]

    table = run(store.table("games"))
    read(run, table)
    with pytest.raises(StoreUnavailableError):
        write(run, table)

    assert len(service.requests) == 5


# Connections.

CALLS, MOST_CONNECTIONS = 300, 100


@pytest.fixture
def lasting(monkeypatch):
    """Let no pause of the machine make connections grow too old to be used again."""
    monkeypatch.setattr(azure, "_KEEP_ALIVE_SECONDS", 600)
    monkeypatch.setattr(azure, "_BACKOFF_SECONDS", 0)


async def all_at_once(calls):
    return await asyncio.gather(*calls)


class Echo(Service):
    """Answers a read with the row that it asked for, and a transaction with one ETag."""

    def answer(self, request: str) -> Answer:
        asked = re.search(r"RowKey='(.*?)'", unquote(request))
        return row(entity(asked[1])) if asked else WRITTEN


def test_many_calls_at_once_share_a_bounded_number_of_connections(run, lasting):
    with served(Echo(), run) as service, connected(run, service.port) as store:
        table = AzureTable(store, "games")

        found = run(all_at_once([table.get("p", f"row-{number}") for number in range(CALLS)]))
        etags = run(all_at_once([table.transact(f"p{n}", INSERT.operations) for n in range(CALLS)]))

        assert [row.row_key for row in found] == [f"row-{number}" for number in range(CALLS)]
        assert etags == [(ETAG,)] * CALLS
        assert len(service.requests) == 2 * CALLS
        assert 1 < service.connections <= MOST_CONNECTIONS


def test_calls_one_after_the_other_take_one_connection(run, service, store, lasting):
    service.answers = [
        CREATED,
        WRITTEN,
        rows(entity("r")),
        error(409, "EntityAlreadyExists"),
        error(404, "TableNotFound"),
        error(403, "AuthenticationFailed"),
        error(503, "ServerBusy"),
        rows(),
        WRITTEN,
    ]

    table = run(store.table("games"))
    for call in (INSERT, read, INSERT, read, INSERT, read, INSERT):
        try:
            call(run, table)
        except EventStoreError:
            continue

    assert service.answers == []
    assert service.connections == 1


def test_a_connection_that_the_service_closes_is_replaced(run, service, table, lasting):
    status, headers, body = WRITTEN
    service.answers = [(status, {**headers, "Connection": "close"}, body), WRITTEN, rows()]

    assert INSERT(run, table) == INSERT(run, table) == (ETAG,)
    assert read(run, table).rows == ()

    assert service.connections == 2
