"""`bare-http`: the requests of a batch, sent with aiohttp and signed by hand. No retries, no checks, no types read."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import UUID

import aiohttp
from yarl import URL

from benchmarks.peers.bare import BareClient, inserts_only, send_all
from benchmarks.peers.emulator import ACCOUNT, KEY, endpoint_of
from benchmarks.peers.recording import Query, Request, Transaction
from benchmarks.shooting import TABLE
from eventstore import Int64, Operation, Value

_ACCEPT = {"Accept": "application/json;odata=minimalmetadata", "x-ms-version": "2019-02-02"}
_BATCH = {"Content-Type": "multipart/mixed; boundary=batch_b", "DataServiceVersion": "3.0"}
_PART = (
    "--changeset_c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\nContent-ID: {number}\r\n"
    "\r\nPOST {url} HTTP/1.1\r\nAccept: application/json\r\nContent-Type: application/json\r\n"
    "DataServiceVersion: 3.0\r\nPrefer: return-no-content\r\n\r\n{entity}\r\n"
)
_BEGIN = "--batch_b\r\nContent-Type: multipart/mixed; boundary=changeset_c\r\n\r\n"
_END = "--changeset_c--\r\n\r\n--batch_b--\r\n"
_TYPES = {
    bytes: "Edm.Binary",
    Int64: "Edm.Int64",
    datetime: "Edm.DateTime",
    UUID: "Edm.Guid",
    float: "Edm.Double",
}


class BareHttp(BareClient):
    """One GET and one POST for each stream."""

    @staticmethod
    def replay(url: str, in_flight: int) -> None:
        """Send what this process was given."""
        asyncio.run(_replay(endpoint_of(url), in_flight))


async def _replay(endpoint: str, in_flight: int) -> None:
    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(connector=connector, headers=_ACCEPT) as session:

        async def send(request: Request) -> None:
            if isinstance(request, Query):
                await _query(session, endpoint, request)
            else:
                await _submit(session, endpoint, inserts_only(request))

        await send_all(send, in_flight)


async def _query(session: aiohttp.ClientSession, endpoint: str, query: Query) -> None:
    rows = (
        f"PartitionKey eq '{query.partition_key}' and RowKey ge '{query.first}' and RowKey le '{query.last}'"
    )
    options = f"$filter={quote(rows, safe='')}"
    if query.select is not None:
        options += f"&$select={quote(','.join(query.select), safe='')}"
    url = f"{endpoint}/{TABLE}()"
    async with session.get(URL(f"{url}?{options}", encoded=True), headers=_signed(url)) as answer:
        answer.raise_for_status()
        json.loads(await answer.read())


async def _submit(session: aiohttp.ClientSession, endpoint: str, transaction: Transaction) -> None:
    parts = [
        _PART.format(number=number, url=f"{endpoint}/{TABLE}", entity=_entity(transaction, operation))
        for number, operation in enumerate(transaction.operations)
    ]
    body = "".join([_BEGIN, *parts, _END]).encode()
    url = f"{endpoint}/$batch"
    async with session.post(URL(url, encoded=True), data=body, headers=_BATCH | _signed(url)) as answer:
        answer.raise_for_status()
        text = await answer.read()
    if text.count(b"HTTP/1.1 204") != len(parts):
        raise ConnectionError(text.decode())


def _signed(url: str) -> dict[str, str]:
    """Return the headers that sign a request by the scheme called Shared Key Lite."""
    date = format_datetime(datetime.now(UTC), usegmt=True)
    text = f"{date}\n/{ACCOUNT}{urlsplit(url).path}"
    digest = hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")
    signature = base64.b64encode(digest).decode()
    return {"x-ms-date": date, "Authorization": f"SharedKeyLite {ACCOUNT}:{signature}"}


def _entity(transaction: Transaction, operation: Operation) -> str:
    entity: dict[str, Any] = {"PartitionKey": transaction.partition_key, "RowKey": operation.row_key}
    for name, value in operation.properties.items():
        if type(value) in _TYPES:
            entity[f"{name}@odata.type"] = _TYPES[type(value)]
        entity[name] = _plain(value)
    return json.dumps(entity, separators=(",", ":"))


def _plain(value: Value) -> str | int | float:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return f"{value.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        case Int64() | UUID():
            return str(value)
        case _:
            return value
