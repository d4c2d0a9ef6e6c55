"""Tables of a storage account: one request for each call of the port."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any
from urllib.parse import quote
from uuid import UUID
from weakref import WeakKeyDictionary

from eventstore.backends.azure.client import Account, Answer, Client, account_of
from eventstore.errors import (
    EventStoreError,
    PayloadTooLargeError,
    RowChangedError,
    RowError,
    RowExistsError,
    RowNotFoundError,
    StoreUnavailableError,
    StoreUrlError,
    TableNotFoundError,
)
from eventstore.keys import escape, escape_bound, table_name, unescape
from eventstore.limits import prepare
from eventstore.port import ANY_ETAG, Int64, Operation, Page, Row, Scope, Store, Table, Value, Verb

# Rows as the JSON of the table service, with the types that JSON lacks named with them.

_TYPE = "@odata.type"
_NOT_PROPERTIES = frozenset({"PartitionKey", "RowKey", "Timestamp"})
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def encode(partition_key: str, row_key: str, properties: Mapping[str, Value]) -> str:
    """Return the JSON of a row with these stored keys."""
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
    # Valid in JSON, but the emulator takes them for the end of a line.
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def decode(entity: Mapping[str, Any]) -> Row:
    """Return the row that a JSON object of the service stands for."""
    properties: dict[str, Value] = {}
    types: list[tuple[str, str]] = []
    for name, value in entity.items():
        # No property has a full stop in its name, what the service says of one has.
        if "." in name:
            if name.endswith(_TYPE):
                types.append((name.removesuffix(_TYPE), value))
        elif value is not None and name not in _NOT_PROPERTIES:
            properties[name] = value
    for name, type_name in types:
        decoder = _DECODERS.get(type_name)
        if decoder is not None and name in properties:
            properties[name] = decoder(properties[name])
    return Row(
        unescape(entity["PartitionKey"]),
        unescape(entity["RowKey"]),
        _entity_etag(entity),
        properties,
        _decode_datetime(entity["Timestamp"]),
    )


def _entity_etag(entity: Mapping[str, Any]) -> str:
    etag = entity.get("odata.etag")
    if etag is not None:
        return str(etag)
    return f"W/\"datetime'{quote(entity['Timestamp'], safe='')}'\""


def _encode_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decode_datetime(value: str) -> datetime:
    return datetime.fromisoformat(value).astimezone(UTC)


_ENCODERS: dict[type, tuple[str, Any]] = {
    bytes: ("Edm.Binary", lambda value: base64.b64encode(value).decode("ascii")),
    float: ("Edm.Double", _encode_float),
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


# A transaction as one request, and the answer to it.
#
# The service takes a transaction as a multipart message with one HTTP request for each operation. Nothing
# in those requests can contain a line break, so the boundaries can be fixed. A transaction of one operation
# can be sent as that request itself, which is less work for both sides.

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


_LARGE_BYTES = 256 * 1024
_ROW_HEADERS = {"Content-Type": "application/json"}
_INSERT_HEADERS = {**_ROW_HEADERS, "Prefer": "return-no-content"}


@dataclass(frozen=True, slots=True)
class RowRequest:
    """The request for one operation, below the endpoint of the account."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the service refused a request, and for a transaction at which operation, None when it does not say."""

    status: int
    code: str
    index: int | None = None


class TransactionWriter:
    """Writes transactions for one table."""

    def __init__(self, endpoint: str, table: str, *, is_cosmos: bool) -> None:
        self._table_url = f"{endpoint}/{table}"
        self._path = f"/{table}"
        self._is_cosmos = is_cosmos

    def row_request(
        self, partition_key: str, row_key: str, operation: Operation, properties: dict[str, Value]
    ) -> RowRequest | None:
        """Return the request for a transaction of one operation, given stored keys; None if it must not go alone.

        An insert, and a merge under an ETag, can: aiohttp does not send them again by itself, as it does with the
        methods of the others, and if the client does they meet themselves. Cosmos DB would not tell a missing row from
        a missing table, for large rows the limits are others, and the emulator damages characters of several bytes
        that arrive in two pieces.
        """
        is_insert = operation.verb is Verb.INSERT
        is_merge = operation.verb is Verb.MERGE and operation.etag != ANY_ETAG
        if self._is_cosmos or not (is_insert or is_merge):
            return None
        text = encode(partition_key, row_key, properties)
        if len(text) > _LARGE_BYTES or not text.isascii():
            return None
        if is_insert:
            return RowRequest("POST", self._path, text.encode(), _INSERT_HEADERS)
        keys = f"PartitionKey='{quote(partition_key, safe='')}',RowKey='{quote(row_key, safe='')}'"
        headers = {**_ROW_HEADERS, "If-Match": _condition(operation.etag or "")}
        return RowRequest("PATCH", f"{self._path}({keys})", text.encode(), headers)

    def body(
        self,
        partition_key: str,
        row_keys: Sequence[str],
        operations: Sequence[Operation],
        prepared: Sequence[dict[str, Value]],
    ) -> bytes:
        """Return the body of the request for a transaction, given stored keys."""
        partition = quote(partition_key, safe="")
        parts = [_BEGIN]
        for index, operation in enumerate(operations):
            parts.append(_BEGIN_OPERATION.format(index=index))
            parts.append(self._request_line(operation.verb, partition, row_keys[index]))
            parts.append(_HEADERS)
            if operation.verb is Verb.INSERT:
                parts.append("Prefer: return-no-content\r\n")
            if operation.etag:
                parts.append(f"If-Match: {_condition(operation.etag)}\r\n")
            parts.append("\r\n")
            if operation.verb is not Verb.DELETE:
                parts.append(encode(partition_key, row_keys[index], prepared[index]))
            parts.append("\r\n")
        parts.append(_END)
        return "".join(parts).encode()

    def _request_line(self, verb: Verb, partition: str, row_key: str) -> str:
        method = _METHODS[verb]
        if verb is Verb.INSERT:
            return f"{method} {self._table_url} HTTP/1.1\r\n"
        row = quote(row_key, safe="")
        url = f"{self._table_url}(PartitionKey='{partition}',RowKey='{row}')"
        if self._is_cosmos and method == "PATCH":
            return f"POST {url} HTTP/1.1\r\nX-HTTP-Method: MERGE\r\n"
        return f"{method} {url} HTTP/1.1\r\n"


def _condition(etag: str) -> str:
    """Return an ETag as it is sent; one that no service gave, and none would read, as one that no row has."""
    return etag if etag == ANY_ETAG or _SERVICE_ETAG.fullmatch(etag) else _NO_ETAG


def etags_or_refusal(answer: bytes, count: int) -> tuple[str, ...] | Refusal:
    """Return the new ETags from the answer to a transaction, "" for deleted rows, or why it was refused."""
    parts = answer.split(b"HTTP/1.1 ")[1:]
    for part in parts:
        status = int(part[:3])
        if status >= 300:  # noqa: PLR2004 - what HTTP calls success is below
            return refusal(status, part)
    if len(parts) != count:
        return Refusal(500, "IncompleteAnswer")
    return tuple([_etag(part) for part in parts])


def _etag(part: bytes) -> str:
    found = _ETAG.search(part)
    return found[1].decode("ascii").strip() if found else ""


def refusal(status: int, text: bytes) -> Refusal:
    """Return what an error's JSON says."""
    start, end = text.find(b"{"), text.rfind(b"}")
    try:
        error = json.loads(text[start : end + 1])["odata.error"]
        code, message = str(error["code"]), error["message"]["value"]
    except (ValueError, KeyError, TypeError):
        return Refusal(status, "")
    index = _INDEX.match(message)
    return Refusal(status, code, int(index[1]) if index else None)


_ROW_ERRORS: dict[str, type[RowError]] = {
    "EntityAlreadyExists": RowExistsError,
    "EntityNotFound": RowNotFoundError,
    "ResourceNotFound": RowNotFoundError,
    "UpdateConditionNotSatisfied": RowChangedError,
    "ConditionNotMet": RowChangedError,
}
_TOO_LARGE = frozenset(
    {
        "RequestBodyTooLarge",
        "EntityTooLarge",
        "PropertyValueTooLarge",
        "TooManyProperties",
        "KeyValueTooLarge",
    }
)
_NO_ROW = frozenset({"ResourceNotFound", "EntityNotFound"})
_NO_TABLE = frozenset({"TableNotFound", "TableBeingDeleted", "ResourceNotFound"})
_FORBIDDEN = frozenset({401, 403})
# Time-out, too many requests, retry with: Cosmos DB says so inside the answer to a transaction, which is
# not retried.
_PASSING = frozenset({408, 429, 449})
_KEY_PROPERTIES = ("PartitionKey", "RowKey", "Timestamp")


class AzureTable(Table):
    """A table of a storage account."""

    scope: Scope = "network"

    def __init__(self, store: AzureStore, name: str) -> None:
        self._store = store
        self._name = self.name = name
        self.store_url = store.url
        account = store.account
        self._writer = TransactionWriter(account.endpoint, name, is_cosmos=account.is_cosmos)

    async def get(self, partition_key: str, row_key: str) -> Row | None:
        return await self._row(escape(partition_key), escape(row_key), None)

    async def query(
        self,
        partition_key: str,
        first: str,
        last: str,
        *,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        stored_key = escape(partition_key)
        if first and first == last:
            row = await self._row(stored_key, escape(first), select)
            return Page(() if row is None else (row,))
        clauses = [("PartitionKey", "eq", stored_key), *_range("RowKey", first, last)]
        return await self._page(clauses, select, continuation)

    async def scan(
        self,
        row_key: str | None,
        first: str = "",
        last: str | None = None,
        *,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        clauses = _range("PartitionKey", first, last)
        if row_key is not None:
            clauses = [("RowKey", "eq", escape(row_key)), *clauses]
        return await self._page(clauses, select, continuation)

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        prepared = prepare(partition_key, operations)
        stored_key = escape(partition_key)
        row_keys = [escape(operation.row_key) for operation in operations]
        if len(operations) == 1:
            request = self._writer.row_request(stored_key, row_keys[0], operations[0], prepared[0])
            if request is not None:
                path, headers = request.path, request.headers
                answer = await self._store.client().write(request.method, path, request.body, headers)
                if answer.status >= 300:  # noqa: PLR2004 - what HTTP calls success is below
                    raise self._refused(refusal(answer.status, answer.body), operations, answer)
                return (answer.headers["ETag"],)
        body = self._writer.body(stored_key, row_keys, operations, prepared)
        answer = await self._store.client().write("POST", "/$batch", body, BATCH_HEADERS)
        if answer.status != 202:  # noqa: PLR2004 - Accepted: the answers to the operations are inside
            raise self._explained(refusal(answer.status, answer.body))
        result = etags_or_refusal(answer.body, len(operations))
        if isinstance(result, Refusal):
            raise self._refused(result, operations, answer)
        return result

    async def barrier(self) -> None:
        """Return at once: the service answers when a write is durable."""

    async def make(self) -> None:
        """Make the table when it is not there."""
        try:
            answer = await self._store.client().create_table(self._name)
        except StoreUrlError:
            # Some signatures allow to use a table and not to make one.
            await self.check()
            return
        if answer is None:
            return
        refused = refusal(answer.status, answer.body)
        if refused.code == "TableBeingDeleted":
            raise StoreUnavailableError(f"The table {self._name} is being deleted.")
        raise self._explained(refused)

    async def check(self) -> None:
        """Raise `TableNotFoundError` when the table is not there. Costs one request."""
        await self._page([("PartitionKey", "eq", ""), ("RowKey", "eq", "")], (), None)

    async def _row(self, partition_key: str, row_key: str, select: Sequence[str] | None) -> Row | None:
        """Read one row by its stored keys: a service that is asked by a filter may look through the table."""
        keys = f"PartitionKey='{quote(partition_key, safe='')}',RowKey='{quote(row_key, safe='')}'"
        answer = await self._store.client().get(f"/{self._name}({keys})?{_select(select)}".rstrip("?"))
        if answer.status == 200:  # noqa: PLR2004 - OK
            return decode(json.loads(answer.body))
        refused = refusal(answer.status, answer.body)
        if refused.code not in _NO_ROW:
            raise self._explained(refused)
        if self._store.account.is_cosmos:
            # It says the same of a table that is not there.
            await self.check()
        return None

    async def _page(
        self, clauses: Sequence[tuple[str, str, str]], select: Sequence[str] | None, continuation: str | None
    ) -> Page:
        wanted = f"$filter={_filter(clauses)}" if clauses else ""
        options = "&".join(filter(None, [wanted, _select(select), (continuation or "").removeprefix("&")]))
        answer = await self._store.client().get(f"/{self._name}()?{options}")
        if answer.status != 200:  # noqa: PLR2004 - OK
            raise self._explained(refusal(answer.status, answer.body))
        entities = json.loads(answer.body)["value"]
        if self._store.account.is_cosmos:
            # It promises no order.
            entities.sort(key=itemgetter("PartitionKey", "RowKey"))
        rows = [decode(entity) for entity in entities]
        return Page(tuple(rows), _continuation(answer))

    def _refused(self, refused: Refusal, operations: Sequence[Operation], answer: Answer) -> EventStoreError:
        row_error = _ROW_ERRORS.get(refused.code)
        # Cosmos DB says of a missing table what it says of a missing row, but names no operation.
        is_of_table = refused.code == "ResourceNotFound" and refused.index is None
        if row_error is None or (is_of_table and self._store.account.is_cosmos):
            return self._explained(refused)
        if answer.was_repeated:
            return StoreUnavailableError(
                f"{self._store.url} failed, and refused the transaction when it was sent again: "
                "the first attempt may have been carried out.",
                outcome_unknown=True,
            )
        # Azure Storage leaves out that it was the first operation.
        index = refused.index or 0
        return row_error(operations[index].row_key, index)

    def _explained(self, refused: Refusal) -> EventStoreError:
        what = f"{self._store.url} refused a request for the table {self._name}: {refused.code or refused.status}."
        if refused.status == 413 or refused.code in _TOO_LARGE:  # noqa: PLR2004 - Payload Too Large
            return PayloadTooLargeError(what)
        if refused.code in _NO_TABLE:
            return TableNotFoundError(self._name, self._store.url)
        if refused.status in _FORBIDDEN:
            return StoreUrlError(
                f"{self._store.url} refused the credentials ({refused.status} {refused.code})."
            )
        if refused.status in _PASSING or refused.status >= 500:  # noqa: PLR2004 - the service's own failures
            return StoreUnavailableError(what, outcome_unknown=True)
        return EventStoreError(what)


class AzureStore(Store):
    """The tables of one storage account."""

    scope: Scope = "network"

    def __init__(self, account: Account) -> None:
        if account.signing == "identity" and not _has_identity():
            raise StoreUrlError(
                "A store url without a key or signature needs azure-identity: "
                "pip install 'consistent-messaging[azure]'."
            )
        self.url = account.endpoint
        self.account = account
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = WeakKeyDictionary()

    @classmethod
    def connect(cls, url: str) -> AzureStore:
        """Return the store behind a url or connection string. Raises `StoreUrlError`."""
        return cls(account_of(url))

    async def table(self, name: str, *, make: bool = True) -> AzureTable:
        table = AzureTable(self, table_name(name))
        await (table.make() if make else table.check())
        return table

    async def close(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None and client.pid == os.getpid():
            await client.close()

    def client(self) -> Client:
        """Return the client of this event loop and process."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None or client.pid != os.getpid():
            for ended in [other for other in self._clients if other.is_closed()]:
                del self._clients[ended]
            client = self._clients[loop] = Client(self.account)
        return client


def _has_identity() -> bool:
    return importlib.util.find_spec("azure.identity") is not None


def _range(name: str, first: str, last: str | None) -> list[tuple[str, str, str]]:
    if first and first == last:
        return [(name, "eq", escape_bound(first))]
    clauses = [(name, "ge", escape_bound(first))] if first else []
    if last is not None:
        clauses.append((name, "le", escape_bound(last)))
    return clauses


def _select(select: Sequence[str] | None) -> str:
    """Return the part of a query that names the properties to read, "" for all."""
    if select is None:
        return ""
    # No property has another name, and the service would read a comma as the end of one.
    names = [name for name in select if name.isidentifier()]
    return f"$select={quote(','.join(dict.fromkeys((*_KEY_PROPERTIES, *names))))}"


def _filter(clauses: Sequence[tuple[str, str, str]]) -> str:
    # A stored key has no quote that could end the text early: it is escaped.
    return quote(
        " and ".join(f"{name} {comparison} '{value}'" for name, comparison, value in clauses), safe=""
    )


def _continuation(answer: Answer) -> str | None:
    """Return the rest of a url that asks for the next page; an empty page can have one too."""
    query = ""
    for name in ("NextPartitionKey", "NextRowKey"):
        value = answer.headers.get(f"x-ms-continuation-{name}")
        if value:
            query += f"&{name}={quote(value, safe='')}"
    return query or None
