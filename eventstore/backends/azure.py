"""Tables of Azure Table Storage, its emulator Azurite, and Cosmos DB's Table API: one request per call.

The client of azure-data-tables signs and retries requests, and creates tables. This module writes the requests for
rows, and sends them through the pipeline of that client. A transaction is one request.

A read is retried after any temporary failure. A transaction is retried only if the service answered that it failed or
was busy. If the service refuses a retried transaction, the first attempt may have succeeded, and the error says that
the outcome is unknown. No error message shows the query of a URL.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import math
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlsplit
from uuid import UUID

import aiohttp
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.core.pipeline import PipelineResponse
from azure.core.pipeline.transport import AioHttpTransport
from azure.core.rest import AsyncHttpResponse, HttpRequest
from azure.data.tables.aio import TableServiceClient

from eventstore import errors, port
from eventstore.errors import EventStoreError, RowChangedError, StoreUnavailableError, StoreUrlError
from eventstore.keys import escape, table_name, unescape
from eventstore.limits import prepare
from eventstore.port import ANY_ETAG, Int64, Operation, Page, Row, Scope, Value, Verb

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential


# The emulator's account is documented; its key is not a secret.
_EMULATOR_ACCOUNT = "devstoreaccount1"
_EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_EMULATOR_HOST = "127.0.0.1:10002"
_LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class Account:
    """The endpoint and credentials of a table service. Its `repr` shows no secret."""

    endpoint: str
    """Scheme, host and path, without a trailing slash."""

    signing: Literal["shared key", "shared access signature", "identity"]
    name: str = ""
    key: str = field(default="", repr=False)
    """In base64."""

    signature: str = field(default="", repr=False)

    @property
    def is_cosmos(self) -> bool:
        return ".cosmos." in self.endpoint or ".cosmosdb." in self.endpoint


def account_of(url: str) -> Account:
    """Return the account of a URL or connection string. Raises `StoreUrlError` if the text is invalid."""
    if url == "azurite":
        return _emulator(_EMULATOR_HOST)
    if url.startswith("azurite://"):
        return _emulator(_checked_host(url.removeprefix("azurite://").rstrip("/"), "azurite://host:port"))
    if not url.startswith("https://"):
        return _of_connection_string(url)
    form = "https://ACCOUNT.table.core.windows.net"
    parts = urlsplit(url)
    endpoint = f"https://{_checked_host(parts.netloc, form)}{parts.path.rstrip('/')}"
    if not parts.query:
        return Account(endpoint, "identity")
    if "sig=" not in parts.query:
        raise StoreUrlError(f"A store URL of the form {form} takes only a shared access signature as query.")
    return Account(endpoint, "shared access signature", signature=parts.query)


def _emulator(host: str) -> Account:
    return Account(f"http://{host}/{_EMULATOR_ACCOUNT}", "shared key", _EMULATOR_ACCOUNT, _EMULATOR_KEY)


def _checked_host(host: str, form: str) -> str:
    try:
        parts = urlsplit(f"//{host}")
        usable = bool(parts.hostname) and parts.netloc == host and "@" not in host and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise StoreUrlError(f"The host of the store URL is invalid: use the form {form}.")
    return host


def _of_connection_string(text: str) -> Account:
    parts = [part.strip().partition("=") for part in text.split(";")]
    settings = {name.strip().lower(): value.strip() for name, separator, value in parts if name and separator}
    if settings.get("usedevelopmentstorage", "").lower() == "true":
        return _emulator(_EMULATOR_HOST)
    name = settings.get("accountname", "")
    endpoint = settings.get("tableendpoint")
    if endpoint is None:
        if not name:
            raise StoreUrlError(
                "The connection string has no AccountName and no TableEndpoint: copy it again."
            )
        scheme = settings.get("defaultendpointsprotocol", "https")
        endpoint = f"{scheme}://{name}.table.{settings.get('endpointsuffix', 'core.windows.net')}"
    url = urlsplit(endpoint)
    if url.scheme not in ("http", "https") or url.query:
        raise StoreUrlError("The endpoint in the connection string is neither http nor https: correct it.")
    endpoint = f"{url.scheme}://{_checked_host(url.netloc, 'host:port')}{url.path.rstrip('/')}"
    if name and (key := settings.get("accountkey")):
        try:
            base64.b64decode(key, validate=True)
        except ValueError:
            raise StoreUrlError("The connection string's AccountKey is not base64: copy it again.") from None
        return Account(endpoint, "shared key", name, key)
    if signature := settings.get("sharedaccesssignature"):
        return Account(endpoint, "shared access signature", name, signature=signature.removeprefix("?"))
    raise StoreUrlError(
        "The connection string has no AccountName with AccountKey, and no SharedAccessSignature: copy it again."
    )


_REQUEST_HEADERS = {
    "Accept": "application/json;odata=minimalmetadata",
    "Accept-Encoding": "identity",
    "DataServiceVersion": "3.0",
    "MaxDataServiceVersion": "3.0;NetFx",
    "x-ms-version": "2019-02-02",
}
_BACKOFF_SECONDS = 0.4
_ANSWER_SECONDS = 60
# Shorter than services keep idle connections: a request sent on a closing one is lost.
_KEEP_ALIVE_SECONDS = 4
_SENT_IN_ONE_GO = 1024 * 1024
_PIECE = 256 * 1024
_FAILED = frozenset({408, 429, 500, 502, 503, 504})
_FORBIDDEN = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class Answer:
    """A service's response, and whether the request was retried."""

    status: int
    headers: Any
    body: bytes
    was_repeated: bool


class Client:
    """The connections of one event loop to one account."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._identity: AsyncTokenCredential | None = None
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=_KEEP_ALIVE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            # A local service needs no proxy.
            trust_env=urlsplit(account.endpoint).hostname not in _LOCAL_HOSTS,
        )
        transport = _Transport(session=session, connection_timeout=10, read_timeout=_ANSWER_SECONDS)
        self._service = TableServiceClient(
            account.endpoint,
            credential=self._credential(),
            transport=transport,
            # By azure-core's defaults a transaction is not retried after a lost response.
            retry_total=3,
            retry_backoff_factor=_BACKOFF_SECONDS,
            timeout=2 * _ANSWER_SECONDS,
            # A redirect would send the signature to another host.
            permit_redirects=False,
            # The trace would contain signatures.
            logging_enable=False,
            # Unused, and costs time.
            auto_request_id=False,
        )

    async def get(self, path: str) -> Answer:
        """Send a GET. A temporary failure raises `StoreUnavailableError`, refused credentials raise `StoreUrlError`."""
        request = HttpRequest("GET", self._account.endpoint + path, headers=_REQUEST_HEADERS)
        return await self._send(request, writes=False)

    async def write(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a request that changes data. Raises the errors of `get`."""
        headers = {**_REQUEST_HEADERS, **headers, "Content-Length": str(len(body))}
        # aiohttp sends bytes at once, and warns if there are many.
        content = body if len(body) < _SENT_IN_ONE_GO else _Pieces(body)
        request = HttpRequest(method, self._account.endpoint + path, headers=headers, content=content)
        return await self._send(request, writes=True)

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()
        if self._identity is not None:
            await self._identity.close()

    def _credential(self) -> AzureNamedKeyCredential | AzureSasCredential | AsyncTokenCredential:
        account = self._account
        if account.signing == "shared key":
            return AzureNamedKeyCredential(account.name, account.key)
        if account.signing == "shared access signature":
            return AzureSasCredential(account.signature)
        from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415 - an optional package

        identity: AsyncTokenCredential = DefaultAzureCredential()
        self._identity = identity
        return identity

    async def _send(self, request: HttpRequest, *, writes: bool) -> Answer:
        attempts: list[PipelineResponse[HttpRequest, AsyncHttpResponse]] = []
        # The client's pipeline is not public. Through its public methods a page takes two to three times as much CPU,
        # and a transaction five times: docs/decisions/0008-azure-requests.md.
        send = self._service._client.send_request  # noqa: SLF001
        try:
            # With `stream`, the client does not decode the response by its declared type, which fails for transactions.
            # `_Transport` reads all of it nevertheless.
            response = await send(request, stream=True, raw_response_hook=attempts.append)
        except AzureError as error:
            raise self._failure(error, writes=writes) from None
        self._check(response.status_code, response.headers, writes=writes)
        was_repeated = bool(attempts[-1].context.get("history"))
        return Answer(response.status_code, response.headers, response.content, was_repeated)

    def _failure(self, error: AzureError, *, writes: bool) -> EventStoreError:
        endpoint = self._account.endpoint
        if isinstance(error, ClientAuthenticationError):
            return StoreUrlError(f"{endpoint}: authentication failed ({type(error).__name__}).")
        cause = type(error.inner_exception or error).__name__
        # Without a connection nothing was sent.
        unknown = writes and not isinstance(error.inner_exception, aiohttp.ClientConnectorError)
        return StoreUnavailableError(f"{endpoint} did not answer ({cause}).", unknown)

    def _check(self, status: int, headers: Any, *, writes: bool) -> None:  # noqa: ANN401 - azure-core's mapping
        endpoint = self._account.endpoint
        if status in _FAILED:
            raise StoreUnavailableError(f"{endpoint} answered with status {status}.", writes)
        if status in _FORBIDDEN:
            code = headers.get("x-ms-error-code", "")
            raise StoreUrlError(f"{endpoint} refused the credentials ({status} {code}".rstrip() + ").")


class _Transport(AioHttpTransport):  # type: ignore[misc]  # loaded late, so it shows no type
    """Reads each response completely before returning it, so that the client retries if the response is truncated."""

    async def send(self, request: HttpRequest, **options: object) -> AsyncHttpResponse:
        answer: AsyncHttpResponse = await super().send(request, **{**options, "stream": False})
        return answer


class _Pieces:
    """A large request body that is sent in pieces. Unlike a generator, it can be sent again in a retry."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), _PIECE):
            yield self._body[start : start + _PIECE]


_TYPE = "@odata.type"
_KEY_PROPERTIES = ("PartitionKey", "RowKey", "Timestamp")
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def encode(partition_key: str, row_key: str, properties: Mapping[str, Value]) -> str:
    """Return the JSON of a row. Both keys must already be escaped."""
    entity: dict[str, Any] = {"PartitionKey": partition_key, "RowKey": row_key}
    for name, value in properties.items():
        encoded = _ENCODERS.get(type(value))
        if encoded is None:
            entity[name] = value
            continue
        type_name, encoder = encoded
        entity[name + _TYPE] = type_name
        entity[name] = encoder(value)
    text = _dumps(entity)
    if text.isascii():
        return text
    # JSON allows line separators, but the emulator treats them as line breaks.
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def decode(entity: Mapping[str, Any]) -> Row:
    """Decode a row from a JSON object of the service. A property with a type annotation gets that type."""
    properties: dict[str, Value] = {}
    types: list[tuple[str, str]] = []
    for name, value in entity.items():
        # Names with a dot are annotations of the service.
        if "." in name:
            if name.endswith(_TYPE):
                types.append((name.removesuffix(_TYPE), value))
        elif value is not None and name not in _KEY_PROPERTIES:
            properties[name] = value
    for name, type_name in types:
        decoder = _DECODERS.get(type_name)
        if decoder is not None and name in properties:
            properties[name] = decoder(properties[name])
    return Row(
        unescape(entity["PartitionKey"]),
        unescape(entity["RowKey"]),
        # Cosmos DB may omit the ETag, which follows from the time.
        str(entity.get("odata.etag") or f"W/\"datetime'{quote(entity['Timestamp'], safe='')}'\""),
        properties,
        _decode_datetime(entity["Timestamp"]),
    )


def _decode_datetime(value: str) -> datetime:
    return datetime.fromisoformat(value).astimezone(UTC)


_ENCODERS: dict[type, tuple[str, Any]] = {
    bytes: ("Edm.Binary", lambda value: base64.b64encode(value).decode("ascii")),
    float: ("Edm.Double", lambda value: value if math.isfinite(value) else json.dumps(value)),
    datetime: (
        "Edm.DateTime",
        lambda value: f"{value.replace(tzinfo=None).isoformat(timespec='microseconds')}Z",
    ),
    UUID: ("Edm.Guid", str),
    Int64: ("Edm.Int64", str),
}
_DECODERS: dict[str, Any] = {
    "Edm.Binary": base64.b64decode,
    "Edm.Double": float,
    "Edm.DateTime": _decode_datetime,
    "Edm.Guid": UUID,
    "Edm.Int64": Int64,
}


# A transaction is a multipart message with one HTTP request for each operation. The requests contain no line breaks, so
# the boundaries can be constant.

BATCH_HEADERS = {"Content-Type": "multipart/mixed; boundary=batch_eventstore"}

_BEGIN = "--batch_eventstore\r\nContent-Type: multipart/mixed; boundary=changeset_eventstore\r\n\r\n"
_BEGIN_OPERATION = (
    "--changeset_eventstore\r\n"
    "Content-Type: application/http\r\n"
    "Content-Transfer-Encoding: binary\r\n"
    "Content-ID: {index}\r\n\r\n"
)
_END = "--changeset_eventstore--\r\n\r\n--batch_eventstore--\r\n"
_HEADERS = (
    "Accept: application/json;odata=minimalmetadata\r\n"
    "Content-Type: application/json\r\n"
    "DataServiceVersion: 3.0\r\n"
)
_METHODS = {
    Verb.INSERT: "POST",
    Verb.REPLACE: "PUT",
    Verb.INSERT_OR_REPLACE: "PUT",
    Verb.MERGE: "PATCH",
    Verb.INSERT_OR_MERGE: "PATCH",
    Verb.DELETE: "DELETE",
}
_ETAG = re.compile(rb"\r\nETag: *([^\r\n]+)", re.IGNORECASE)
_SERVICE_ETAG = re.compile(r"""W/"[!#-~]*\"""")
_NO_ETAG = "W/\"datetime'1601-01-01T00%3A00%3A00.0000000Z'\""
_INDEX = re.compile(r"(\d+):")


_ALONE_BYTES = 256 * 1024  # the largest row that is sent as a plain request


@dataclass(frozen=True, slots=True)
class Refusal:
    """The service's refusal of a request. `index` is the position of the refused operation, None if unknown."""

    status: int
    code: str
    index: int | None = None


def transaction(
    table_url: str,
    partition_key: str,
    row_keys: Sequence[str],
    operations: Sequence[Operation],
    prepared: Sequence[dict[str, Value]],
    *,
    is_cosmos: bool,
) -> bytes:
    """Return the request body of a transaction. The caller must already have escaped all keys with `keys.escape`.

    `prepared` is the result of `limits.prepare`. Like `row_keys`, it has one item for each operation.
    """
    parts = [_BEGIN]
    for index, operation in enumerate(operations):
        verb = operation.verb
        method, merges = _METHODS[verb], ""
        url = table_url if verb is Verb.INSERT else _row_url(table_url, partition_key, row_keys[index])
        if is_cosmos and method == "PATCH":
            method, merges = "POST", "X-HTTP-Method: MERGE\r\n"
        parts.append(_BEGIN_OPERATION.format(index=index))
        parts.append(f"{method} {url} HTTP/1.1\r\n{merges}")
        parts.append(_HEADERS)
        if verb is Verb.INSERT:
            parts.append("Prefer: return-no-content\r\n")
        if operation.etag:
            parts.append(f"If-Match: {_condition(operation.etag)}\r\n")
        parts.append("\r\n")
        if verb is not Verb.DELETE:
            parts.append(encode(partition_key, row_keys[index], prepared[index]))
        parts.append("\r\n")
    parts.append(_END)
    return "".join(parts).encode()


def _row_url(table_url: str, partition_key: str, row_key: str) -> str:
    return f"{table_url}(PartitionKey='{quote(partition_key, safe='')}',RowKey='{quote(row_key, safe='')}')"


def _condition(etag: str) -> str:
    """Return `etag` or, if it is not in the service's format, an ETag that no row has."""
    return etag if etag == ANY_ETAG or _SERVICE_ETAG.fullmatch(etag) else _NO_ETAG


def etags_or_refusal(answer: bytes, count: int) -> tuple[str, ...] | Refusal:
    """Return the new ETag of each operation ("" for a deletion), or the refusal that the response contains."""
    parts = answer.split(b"HTTP/1.1 ")[1:]
    for part in parts:
        status = int(part[:3])
        if status >= 300:  # noqa: PLR2004 - what HTTP calls success is below
            return refusal(status, part)
    if len(parts) != count:
        return Refusal(500, "IncompleteAnswer")
    matches = [_ETAG.search(part) for part in parts]
    return tuple([etag[1].decode("ascii").strip() if etag else "" for etag in matches])


def refusal(status: int, text: bytes) -> Refusal:
    """Return the refusal that the JSON of an error response describes."""
    start, end = text.find(b"{"), text.rfind(b"}")
    try:
        error = json.loads(text[start : end + 1])["odata.error"]
        code, message = str(error["code"]), error["message"]["value"]
    except (ValueError, KeyError, TypeError):
        return Refusal(status, "")
    index = _INDEX.match(message)
    return Refusal(status, code, int(index[1]) if index else None)


_ROW_ERRORS: dict[str, type[errors.RowError]] = {
    "EntityAlreadyExists": errors.RowExistsError,
    "EntityNotFound": errors.RowNotFoundError,
    "ResourceNotFound": errors.RowNotFoundError,
    "UpdateConditionNotSatisfied": RowChangedError,
    "ConditionNotMet": RowChangedError,
}
_TOO_LARGE = {"RequestBodyTooLarge", "EntityTooLarge", "PropertyValueTooLarge", "TooManyProperties",
              "KeyValueTooLarge"}  # fmt: skip
_NEXT = ("NextPartitionKey", "NextRowKey")
_NO_ROW = frozenset({"ResourceNotFound", "EntityNotFound"})
_NO_TABLE = frozenset({"TableNotFound", "TableBeingDeleted", "ResourceNotFound"})
# Time-out, too many requests, retry: Cosmos DB answers these inside a transaction, where the client does not retry.
_PASSING = frozenset({408, 429, 449})


class AzureTable(port.RangeTable):
    scope: Scope = "network"

    def __init__(self, store: AzureStore, name: str) -> None:
        self._store = store
        self.name = name
        self.store_url = store.url

    async def get(self, partition_key: str, row_key: str) -> Row | None:
        return await self._row(escape(partition_key), escape(row_key), None)

    async def page(
        self, kind: port.PageKind, bounds: port.Bounds, select: Sequence[str] | None, continuation: str | None
    ) -> Page:
        key, low, high = bounds
        if kind == "query" and low and low == high:
            row = await self._row(key, low, select)
            return Page(() if row is None else (row,))
        by, ranged = ("PartitionKey", "RowKey") if kind == "query" else ("RowKey", "PartitionKey")
        clauses = [] if kind == "scan_all" else [(by, "eq", key)]
        if low and low == high:
            clauses.append((ranged, "eq", low))
        else:
            clauses += [(ranged, "ge", low)] * bool(low) + [(ranged, "le", high)] * (high != port.LAST_KEY)
        return await self._page(clauses, select, continuation)

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        prepared = prepare(partition_key, operations)
        stored_key = escape(partition_key)
        row_keys = [escape(operation.row_key) for operation in operations]
        account = self._store.account
        if len(operations) == 1 and not account.is_cosmos:
            # Cosmos DB gives the same answer for a missing row and a missing table.
            etag = await self._send_alone(stored_key, row_keys[0], operations[0], prepared[0])
            if etag is not None:
                return (etag,)
        body = transaction(
            f"{account.endpoint}/{self.name}",
            stored_key,
            row_keys,
            operations,
            prepared,
            is_cosmos=account.is_cosmos,
        )
        answer = await self._store.client().write("POST", "/$batch", body, BATCH_HEADERS)
        if answer.status != 202:  # noqa: PLR2004 - Accepted: the answers to the operations are inside
            raise self._explained(refusal(answer.status, answer.body))
        result = etags_or_refusal(answer.body, len(operations))
        if isinstance(result, Refusal):
            raise self._refused(result, operations, answer)
        return result

    async def _send_alone(
        self, partition_key: str, row_key: str, operation: Operation, properties: dict[str, Value]
    ) -> str | None:
        """Send one operation without a transaction, which is cheaper. Return the new ETag.

        Sends nothing and returns None if the operation needs a transaction.
        """
        # Inserts and merges with an ETag qualify: aiohttp does not resend POST and PATCH by itself, and if the client
        # retries one, it conflicts with itself.
        path, headers = f"/{self.name}", {"Content-Type": "application/json"}
        if operation.verb is Verb.INSERT:
            headers["Prefer"] = "return-no-content"
        elif operation.verb is Verb.MERGE and operation.etag and operation.etag != ANY_ETAG:
            path = _row_url(path, partition_key, row_key)
            headers["If-Match"] = _condition(operation.etag)
        else:
            return None
        text = encode(partition_key, row_key, properties)
        # Large rows have other limits, and the emulator corrupts multi-byte characters split between packets.
        if len(text) > _ALONE_BYTES or not text.isascii():
            return None
        answer = await self._store.client().write(_METHODS[operation.verb], path, text.encode(), headers)
        if answer.status >= 300:  # noqa: PLR2004 - what HTTP calls success is below
            raise self._refused(refusal(answer.status, answer.body), [operation], answer)
        etag: str = answer.headers["ETag"]
        return etag

    async def barrier(self) -> None:
        """No-op: the service answers only when a write is durable."""

    async def make(self) -> None:
        body, headers = _dumps({"TableName": self.name}).encode(), {"Content-Type": "application/json"}
        try:
            answer = await self._store.client().write("POST", "/Tables", body, headers)
        except StoreUrlError:
            # Some signatures permit using a table but not creating one.
            await self.check()
            return
        refused = refusal(answer.status, answer.body)
        if refused.code == "TableBeingDeleted":
            raise StoreUnavailableError(f"The table {self.name} is being deleted.")
        if answer.status not in (201, 204, 409):  # created, or exists
            raise self._explained(refused)

    async def check(self) -> None:
        """Raise `TableNotFoundError` if the table does not exist. Costs one request."""
        await self._page([("PartitionKey", "eq", ""), ("RowKey", "eq", "")], (), None)

    async def _row(self, partition_key: str, row_key: str, select: Sequence[str] | None) -> Row | None:
        # A point read: a filter could make the service scan the table.
        path = f"{_row_url(f'/{self.name}', partition_key, row_key)}?{_select(select)}"
        answer = await self._store.client().get(path.rstrip("?"))
        if answer.status == 200:  # noqa: PLR2004 - OK
            return decode(json.loads(answer.body))
        refused = refusal(answer.status, answer.body)
        if refused.code not in _NO_ROW:
            raise self._explained(refused)
        if self._store.account.is_cosmos:
            # The answer is the same for a missing table.
            await self.check()
        return None

    async def _page(
        self, clauses: Sequence[tuple[str, str, str]], select: Sequence[str] | None, continuation: str | None
    ) -> Page:
        # Escaped keys contain no quotes.
        wanted = " and ".join(f"{name} {comparison} '{value}'" for name, comparison, value in clauses)
        options = [wanted and f"$filter={quote(wanted, safe='')}", _select(select), continuation]
        answer = await self._store.client().get(f"/{self.name}()?{'&'.join(filter(None, options))}")
        if answer.status != 200:  # noqa: PLR2004 - OK
            raise self._explained(refusal(answer.status, answer.body))
        entities = json.loads(answer.body)["value"]
        if self._store.account.is_cosmos:
            # Cosmos DB guarantees no order.
            entities.sort(key=itemgetter("PartitionKey", "RowKey"))
        rows = [decode(entity) for entity in entities]
        # Even an empty page can be followed by another.
        following = {key: answer.headers.get(f"x-ms-continuation-{key}") for key in _NEXT}
        parts = [f"{key}={quote(value, safe='')}" for key, value in following.items() if value]
        return Page(tuple(rows), "&".join(parts) or None)

    def _refused(self, refused: Refusal, operations: Sequence[Operation], answer: Answer) -> EventStoreError:
        row_error = _ROW_ERRORS.get(refused.code)
        # For a missing table, Cosmos DB answers as for a missing row, but without an operation.
        is_of_table = refused.code == "ResourceNotFound" and refused.index is None
        if row_error is None or (is_of_table and self._store.account.is_cosmos):
            return self._explained(refused)
        if answer.was_repeated:
            return StoreUnavailableError(
                f"{self._store.url} failed, and refused the transaction when it was retried: "
                "the first attempt may have succeeded.",
                outcome_unknown=True,
            )
        # Azure Storage omits the index of the first operation.
        index = refused.index or 0
        return row_error(operations[index].row_key, index)

    def _explained(self, refused: Refusal) -> EventStoreError:
        what = f"{self._store.url} refused a request for the table {self.name}: {refused.code or refused.status}."
        if refused.status == 413 or refused.code in _TOO_LARGE:  # noqa: PLR2004 - Payload Too Large
            return errors.PayloadTooLargeError(what)
        if refused.code in _NO_TABLE:
            return errors.TableNotFoundError(self.name, self._store.url)
        if refused.status in _FORBIDDEN:
            status = f"{refused.status} {refused.code}"
            return StoreUrlError(f"{self._store.url} refused the credentials ({status}).")
        if refused.status in _PASSING or refused.status >= 500:  # noqa: PLR2004 - the service's own failures
            return StoreUnavailableError(what, outcome_unknown=True)
        return EventStoreError(what)


class AzureStore(port.Store):
    """The tables of one storage account."""

    scope: Scope = "network"

    def __init__(self, account: Account) -> None:
        if account.signing == "identity" and not _has_identity():
            raise StoreUrlError(
                "A store URL without a key or signature needs azure-identity: "
                "pip install 'consistent-messaging[azure]'."
            )
        self.url = account.endpoint
        self.account = account
        self._clients = port.PerLoop(partial(Client, account))

    async def table(self, name: str, *, make: bool = True) -> AzureTable:
        table = AzureTable(self, table_name(name))
        await (table.make() if make else table.check())
        return table

    async def close(self) -> None:
        """Close the connections of this event loop."""
        await self._clients.close()

    def client(self) -> Client:
        """Return the client of this event loop and process."""
        return self._clients.get()


def _has_identity() -> bool:
    return importlib.util.find_spec("azure.identity") is not None


def _select(select: Sequence[str] | None) -> str:
    if select is None:
        return ""
    # No other property can exist, and a comma would separate names.
    names = [name for name in select if name.isidentifier()]
    return f"$select={quote(','.join(dict.fromkeys((*_KEY_PROPERTIES, *names))))}"
