"""What the Azure backend asks of a table service, and makes of its answers. A small HTTP server plays the service."""

import asyncio
import json
import re
import socket
import sys
import time
import types
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import unquote

import pytest
from azure.core.exceptions import ClientAuthenticationError

from eventstore import (
    EventStoreError,
    Operation,
    Partition,
    PayloadTooLargeError,
    StoreUnavailableError,
    StoreUrlError,
    Stream,
    TableNotFoundError,
    connect,
)
from eventstore.backends import azure
from eventstore.backends.azure import AzureStore, AzureTable, Refusal, decode, encode, refusal, transaction
from tests.support import table_service
from tests.support.table_service import (
    ACCEPTED,
    CREATED,
    HANG_UP,
    WRITTEN,
    Answer,
    Service,
    broken_off,
    error,
    refused,
    row,
    rows,
    served,
)

ETAG = 'W/"one"'


def entity(row_key="r", **properties):
    return {**table_service.entity(row_key), **properties}


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


def test_cosmos_db_merges_by_another_method():
    ((head, _),) = requests(body(Operation.merge("r", {}, ETAG), is_cosmos=True))

    assert head.startswith("POST https://acct.table.core.windows.net/games(PartitionKey='a%20b',RowKey='r')")
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


# Requests, and what is repeated.


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


@pytest.fixture
def store(store_at, service):
    return store_at(service)


@pytest.fixture
def table(store):
    return AzureTable(store, "games")


class Writing(NamedTuple):
    """A kind of transaction: what is written, and how the service says that it was, or was not."""

    operations: list[Operation]
    line: str
    accepted: Answer

    @property
    def is_batch(self):
        return "$batch" in self.line

    def refused(self, status, code):
        return (refused if self.is_batch else error)(status, code)

    def __call__(self, run, table):
        return run(table.transact("p", self.operations))


INSERT = Writing([Operation.insert("r", {"V": 1})], "POST /acct/games", WRITTEN)
SEVERAL = Writing(
    [Operation.insert("r", {"V": 1}), Operation.insert("s", {"V": 1})],
    "POST /acct/$batch",
    (202, {}, 2 * b'HTTP/1.1 204 No Content\r\nETag: W/"one"\r\n\r\n\r\n'),
)
MERGE = Writing(
    [Operation.merge("r", {"V": 1}, ETAG)], "PATCH /acct/games(PartitionKey='p',RowKey='r')", WRITTEN
)
WRITINGS = [
    INSERT,
    MERGE,
    SEVERAL,
    *[
        Writing([operation], SEVERAL.line, ACCEPTED)
        for operation in (
            Operation.replace("r", {"V": 1}, ETAG),
            Operation.delete("r", ETAG),
            Operation.merge("r", {"V": 1}),
            Operation.insert("r", {f"P{n}": b"x" * 60_000 for n in range(5)}),  # large
            Operation.insert("r", {"V": "ü"}),
        )
    ],
]


@pytest.fixture(params=[INSERT, MERGE, SEVERAL], ids=["insert", "merge", "several"])
def write(request):
    """Give a transaction that is sent as a request for a row, or one that is not."""
    return request.param


def read(run, table):
    return run(table.query("p", "a", "z"))


@pytest.mark.parametrize("write", WRITINGS)
def test_a_transaction_is_one_request(run, service, table, write):
    service.answers = [write.accepted]

    assert write(run, table) == (ETAG,) * len(write.operations)
    ((asked, headers),) = service.requests
    assert asked.split(" HTTP")[0] == write.line
    assert headers["content-type"].startswith("multipart/mixed" if write.is_batch else "application/json")
    assert headers.get("if-match") == (ETAG if write is MERGE else None)


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


BUSY = [error(500, "InternalError"), error(503, "ServerBusy"), error(504, "Gateway")]


@pytest.mark.parametrize("failure", BUSY)
def test_a_transaction_is_repeated_when_the_service_is_busy(run, service, table, failure, write):
    service.answers = [failure, failure, write.accepted]

    assert write(run, table) == (ETAG,) * len(write.operations)
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


def busy(status, **headers) -> Answer:
    status, own, body = error(status, "TooManyRequests")
    return (status, {**own, **{name.replace("_", "-"): value for name, value in headers.items()}}, body)


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
        # Nothing says how long to wait, so that is left to the caller.
        assert told or status != 429 or act is read or len(service.times) == 1


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


def make(run, table):
    return run(table._store.table("games"))


@pytest.mark.parametrize(
    ("call", "answers", "seconds"),
    [
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


# Connections.

CALLS, MOST_CONNECTIONS = 300, 100


class Echo(Service):
    """Answers a read with the row that it asked for, and a transaction with one ETag."""

    def answer(self, request: str) -> Answer:
        asked = re.search(r"RowKey='(.*?)'", unquote(request))
        return row(entity(asked[1])) if asked else WRITTEN


@pytest.fixture
def lasting(monkeypatch):
    """Let no pause of the machine make connections grow too old to be used again."""
    monkeypatch.setattr(azure, "_KEEP_ALIVE_SECONDS", 600)


def test_many_calls_at_once_share_a_bounded_number_of_connections(run, lasting, store_at):
    async def all_at_once(calls):
        return await asyncio.gather(*calls)

    with served(Echo(), run) as service:
        table = AzureTable(store_at(service), "games")

        found = run(all_at_once([table.get("p", f"row-{number}") for number in range(CALLS)]))
        etags = run(all_at_once([table.transact(f"p{n}", INSERT.operations) for n in range(CALLS)]))

        assert [row.row_key for row in found] == [f"row-{number}" for number in range(CALLS)]
        assert etags == [(ETAG,)] * CALLS
        assert len(service.requests) == 2 * CALLS
        assert 1 < service.connections <= MOST_CONNECTIONS


def test_calls_one_after_the_other_take_one_connection(run, lasting, service, store):
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


# Signing in.


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
