"""A transaction as one request, and the answer to it.

The service takes a transaction as a multipart message with one HTTP request for each operation. Nothing in
those requests can contain a line break, so the boundaries can be fixed. A transaction of one operation can be
sent as that request itself, which is less work for both sides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from eventstore.backends.azure.entities import encode
from eventstore.port import ANY_ETAG, Operation, Value, Verb

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
