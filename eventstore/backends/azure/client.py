"""Sending requests to a table service: signatures, repetition, and what its errors mean.

Reads are repeated after any failure that may pass; a transaction only after an answer which says that the
service failed or was busy. When a repeated transaction is refused, the first attempt may have been carried
out and have met itself: the outcome is unknown then, and said to be. No message shows a url's query.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from wsgiref.handlers import format_date_time

import aiohttp
from azure.core.credentials import AzureSasCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.core.pipeline import AsyncPipeline, PipelineRequest
from azure.core.pipeline.policies import (
    AsyncBearerTokenCredentialPolicy,
    AsyncRetryPolicy,
    AzureSasCredentialPolicy,
    SansIOHTTPPolicy,
)
from azure.core.pipeline.transport import AioHttpTransport
from azure.core.rest import AsyncHttpResponse, HttpRequest

from eventstore.backends.azure.account import Account
from eventstore.errors import StoreUnavailableError, StoreUrlError

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential

_HEADERS = {
    "Accept": "application/json;odata=minimalmetadata",
    "Accept-Encoding": "identity",
    "DataServiceVersion": "3.0",
    "MaxDataServiceVersion": "3.0;NetFx",
    "x-ms-version": "2019-02-02",
}
_RETRIES = 3
_BACKOFF_SECONDS = 0.4
_CONNECT_SECONDS = 10
_ANSWER_SECONDS = 60
# Shorter than services keep an idle connection: what is sent into a closing one is lost.
_KEEP_ALIVE_SECONDS = 4
_SENT_IN_ONE_GO = 1024 * 1024
_STORAGE_SCOPE = "https://storage.azure.com/.default"
_COSMOS_SCOPE = "https://cosmos.azure.com/.default"
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_FORBIDDEN = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a service answered, and whether it had been asked before."""

    status: int
    headers: Any
    body: bytes
    was_repeated: bool


class Client:
    """The connections of one event loop to one account."""

    def __init__(self, account: Account) -> None:
        self.pid = os.getpid()
        self._account = account
        self._credential: AsyncTokenCredential | None = None
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=_KEEP_ALIVE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=not account.is_local,
        )
        transport = AioHttpTransport(
            session=session, connection_timeout=_CONNECT_SECONDS, read_timeout=_ANSWER_SECONDS
        )
        retry = AsyncRetryPolicy(
            retry_total=_RETRIES, retry_backoff_factor=_BACKOFF_SECONDS, timeout=2 * _ANSWER_SECONDS
        )
        self._pipeline: AsyncPipeline[HttpRequest, AsyncHttpResponse] = AsyncPipeline(
            transport, [retry, self._signature()]
        )

    async def get(self, path: str) -> Answer:
        """Read. Raises `StoreUnavailableError` and `StoreUrlError`."""
        return await self._send(
            HttpRequest("GET", self._account.endpoint + path, headers=_HEADERS), writes=False
        )

    async def post(self, path: str, body: bytes, content_type: str) -> Answer:
        """Write. Raises `StoreUnavailableError` and `StoreUrlError`."""
        headers = {**_HEADERS, "Content-Type": content_type, "Content-Length": str(len(body))}
        # aiohttp sends a file piece by piece, but bytes in one go, and warns of that when there are many.
        content = body if len(body) < _SENT_IN_ONE_GO else io.BytesIO(body)
        request = HttpRequest("POST", self._account.endpoint + path, headers=headers, content=content)
        return await self._send(request, writes=True)

    async def close(self) -> None:
        """Close the connections."""
        await self._pipeline.__aexit__()
        if self._credential is not None:
            await self._credential.close()

    async def _send(self, request: HttpRequest, *, writes: bool) -> Answer:
        endpoint = self._account.endpoint
        try:
            response = await self._pipeline.run(request)
        except ClientAuthenticationError as error:
            raise StoreUrlError(f"{endpoint}: signing in failed ({type(error).__name__}).") from None
        except AzureError as error:
            cause = type(error.inner_exception or error).__name__
            # A connection that was never made has carried nothing out.
            unknown = writes and not isinstance(error.inner_exception, aiohttp.ClientConnectorError)
            raise StoreUnavailableError(f"{endpoint} did not answer ({cause}).", unknown) from None
        answered = response.http_response
        if answered.status_code in _PASSING:
            raise StoreUnavailableError(f"{endpoint} answered with status {answered.status_code}.", writes)
        if answered.status_code in _FORBIDDEN:
            code = answered.headers.get("x-ms-error-code", "")
            raise StoreUrlError(
                f"{endpoint} refused the credentials ({answered.status_code} {code}".rstrip() + ")."
            )
        was_repeated = bool(response.context.get("history"))
        return Answer(answered.status_code, answered.headers, answered.content, was_repeated)

    def _signature(self) -> Any:  # noqa: ANN401 - azure-core's policies have no common public type
        account = self._account
        if account.signing == "shared key":
            return SharedKeyPolicy(account.name, account.key)
        if account.signing == "shared access signature":
            return AzureSasCredentialPolicy(AzureSasCredential(account.signature))
        from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415 - an optional package

        self._credential = DefaultAzureCredential()
        scope = _COSMOS_SCOPE if account.is_cosmos else _STORAGE_SCOPE
        return AsyncBearerTokenCredentialPolicy(self._credential, scope)


class SharedKeyPolicy(SansIOHTTPPolicy[HttpRequest, AsyncHttpResponse]):
    """Signs requests with an account's key, as Azure's documentation of Shared Key for tables says."""

    def __init__(self, account: str, key: bytes) -> None:
        self._account = account
        self._key = key

    def on_request(self, request: PipelineRequest[HttpRequest]) -> None:
        """Date and sign a request."""
        http = request.http_request
        date = format_date_time(time.time())
        content_type = http.headers.get("Content-Type", "")
        path = urlsplit(http.url).path
        text = f"{http.method}\n\n{content_type}\n{date}\n/{self._account}{path}"
        digest = hmac.digest(self._key, text.encode(), hashlib.sha256)
        signature = base64.b64encode(digest).decode("ascii")
        http.headers["x-ms-date"] = date
        http.headers["Authorization"] = f"SharedKey {self._account}:{signature}"
