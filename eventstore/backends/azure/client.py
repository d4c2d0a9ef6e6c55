"""Sending requests to a table service through the client of azure-data-tables, and what its errors mean.

The client signs and repeats. Reads are repeated after any failure that may pass; a transaction only after an
answer which says that the service failed or was busy. When a repeated transaction is refused, the first
attempt may have been carried out and have met itself: the outcome is unknown then, and said to be. No message
shows a url's query.
"""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import aiohttp
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.core.pipeline import PipelineResponse
from azure.core.pipeline.transport import AioHttpTransport
from azure.core.rest import AsyncHttpResponse, HttpRequest
from azure.data.tables.aio import TableServiceClient

from eventstore.errors import EventStoreError, StoreUnavailableError, StoreUrlError

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential


# Which account a url means, and what its requests are signed with.

# The emulator's account is the same everywhere and documented, its key is no secret.
_EMULATOR_ACCOUNT = "devstoreaccount1"
_EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_EMULATOR_HOST = "127.0.0.1:10002"
_LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})

Signing = Literal["shared key", "shared access signature", "identity"]


@dataclass(frozen=True, slots=True)
class Account:
    """A table service's endpoint, with what signs its requests. Its text form shows no secret."""

    endpoint: str
    """Scheme, host and path, without a slash at the end."""

    signing: Signing
    name: str = ""
    key: str = field(default="", repr=False)
    """In base64."""

    signature: str = field(default="", repr=False)

    @property
    def is_cosmos(self) -> bool:
        """Whether the endpoint is one of Cosmos DB."""
        return ".cosmos." in self.endpoint or ".cosmosdb." in self.endpoint

    @property
    def is_local(self) -> bool:
        """Whether the endpoint is on this machine, so that no proxy stands in between."""
        return urlsplit(self.endpoint).hostname in _LOCAL_HOSTS


def account_of(url: str) -> Account:
    """Return the account that a url or a connection string means. Raises `StoreUrlError`."""
    if url == "azurite":
        return _emulator(_EMULATOR_HOST)
    if url.startswith("azurite://"):
        return _emulator(_checked_host(url.removeprefix("azurite://").rstrip("/"), "azurite://host:port"))
    if url.startswith("https://"):
        return _of_https(url)
    return _of_connection_string(url)


def _emulator(host: str) -> Account:
    return Account(f"http://{host}/{_EMULATOR_ACCOUNT}", "shared key", _EMULATOR_ACCOUNT, _EMULATOR_KEY)


def _of_https(url: str) -> Account:
    form = "https://ACCOUNT.table.core.windows.net"
    parts = urlsplit(url)
    endpoint = f"https://{_checked_host(parts.netloc, form)}{parts.path.rstrip('/')}"
    if not parts.query:
        return Account(endpoint, "identity")
    if "sig=" not in parts.query:
        raise StoreUrlError(f"A store url of the form {form} has no query but a shared access signature.")
    return Account(endpoint, "shared access signature", signature=parts.query)


def _checked_host(host: str, form: str) -> str:
    try:
        parts = urlsplit(f"//{host}")
        usable = bool(parts.hostname) and parts.netloc == host and "@" not in host and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise StoreUrlError(f"The store url has no host that can be used; its form is {form}.")
    return host


def _of_connection_string(text: str) -> Account:
    settings = {}
    for part in text.split(";"):
        name, separator, value = part.strip().partition("=")
        if name and separator:
            settings[name.strip().lower()] = value.strip()
    if settings.get("usedevelopmentstorage", "").lower() == "true":
        return _emulator(_EMULATOR_HOST)
    name = settings.get("accountname", "")
    endpoint = _endpoint(settings, name)
    if settings.get("accountkey") and name:
        return Account(endpoint, "shared key", name, _checked_key(settings["accountkey"]))
    if settings.get("sharedaccesssignature"):
        signature = settings["sharedaccesssignature"].removeprefix("?")
        return Account(endpoint, "shared access signature", name, signature=signature)
    raise StoreUrlError(
        "The connection string has neither an AccountName with an AccountKey nor a SharedAccessSignature."
    )


def _endpoint(settings: dict[str, str], name: str) -> str:
    endpoint = settings.get("tableendpoint")
    if endpoint is None:
        if not name:
            raise StoreUrlError("The connection string has neither an AccountName nor a TableEndpoint.")
        scheme = settings.get("defaultendpointsprotocol", "https")
        endpoint = f"{scheme}://{name}.table.{settings.get('endpointsuffix', 'core.windows.net')}"
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or parts.query:
        raise StoreUrlError("The connection string's endpoint is none of http or https.")
    return f"{parts.scheme}://{_checked_host(parts.netloc, 'host:port')}{parts.path.rstrip('/')}"


def _checked_key(key: str) -> str:
    try:
        base64.b64decode(key, validate=True)
    except ValueError:
        raise StoreUrlError("The connection string's AccountKey is not base64.") from None
    return key


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
_PIECE = 256 * 1024
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
        self._end_of_the_loop: AsyncGenerator[None, None] | None = None
        self._identity: AsyncTokenCredential | None = None
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=_KEEP_ALIVE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=not account.is_local,
        )
        transport = _Transport(
            session=session, connection_timeout=_CONNECT_SECONDS, read_timeout=_ANSWER_SECONDS
        )
        self._service = TableServiceClient(
            account.endpoint,
            credential=self._credential(),
            transport=transport,
            # Of the failures, azure-core's defaults say which are repeated: they keep a transaction from
            # being sent again when its answer was lost.
            retry_total=_RETRIES,
            retry_backoff_factor=_BACKOFF_SECONDS,
            timeout=2 * _ANSWER_SECONDS,
            # A redirection would carry the signature to another host.
            permit_redirects=False,
            # This trace would have the signatures in it.
            logging_enable=False,
            # Nobody would read the ids, and making them takes time.
            auto_request_id=False,
        )

    async def get(self, path: str) -> Answer:
        """Read. Raises `StoreUnavailableError` and `StoreUrlError`."""
        return await self._send(
            HttpRequest("GET", self._account.endpoint + path, headers=_HEADERS), writes=False
        )

    async def write(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Write. Raises `StoreUnavailableError` and `StoreUrlError`."""
        headers = {**_HEADERS, **headers, "Content-Length": str(len(body))}
        # aiohttp sends bytes in one go, and warns of that when there are many.
        content = body if len(body) < _SENT_IN_ONE_GO else _Pieces(body)
        request = HttpRequest(method, self._account.endpoint + path, headers=headers, content=content)
        return await self._send(request, writes=True)

    async def create_table(self, name: str) -> Answer | None:
        """Make a table unless it is there; return the answer if it was another.

        Raises `StoreUnavailableError` and `StoreUrlError`.
        """
        await self._begin()
        try:
            await self._service.create_table_if_not_exists(name)
        except AzureError as error:
            response = getattr(error, "response", None)
            if not isinstance(response, AsyncHttpResponse):
                raise self._failure(error, writes=True) from None
        else:
            return None
        self._check(response.status_code, response.headers, writes=True)
        return Answer(response.status_code, response.headers, response.content, was_repeated=False)

    async def close(self) -> None:
        """Close the connections."""
        if self._end_of_the_loop is None:
            await self._close()
        else:
            await self._end_of_the_loop.aclose()

    async def _close(self) -> None:
        await self._service.close()
        if self._identity is not None:
            await self._identity.close()

    async def _begin(self) -> None:
        if self._end_of_the_loop is None:
            self._end_of_the_loop = self._closing_with_the_loop()
            await anext(self._end_of_the_loop)

    async def _closing_with_the_loop(self) -> AsyncGenerator[None, None]:
        """Wait for the end of the event loop, which closes the asynchronous generators that it has begun.

        So a program that runs several loops on one store, one after the other, leaves no connection open.
        """
        try:
            yield
        finally:
            if self.pid == os.getpid():
                await self._close()

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
        await self._begin()
        attempts: list[PipelineResponse[HttpRequest, AsyncHttpResponse]] = []
        # The client's own pipeline has no public door. Through the public methods a page costs two to three
        # times as much processor time and a transaction five times: docs/decisions/0008-azure-requests.md.
        send = self._service._client.send_request  # noqa: SLF001
        try:
            response = await send(request, stream=True, raw_response_hook=attempts.append)
        except AzureError as error:
            raise self._failure(error, writes=writes) from None
        self._check(response.status_code, response.headers, writes=writes)
        was_repeated = bool(attempts[-1].context.get("history"))
        return Answer(response.status_code, response.headers, response.content, was_repeated)

    def _failure(self, error: AzureError, *, writes: bool) -> EventStoreError:
        """Return what it means that there is no answer."""
        endpoint = self._account.endpoint
        if isinstance(error, ClientAuthenticationError):
            return StoreUrlError(f"{endpoint}: signing in failed ({type(error).__name__}).")
        cause = type(error.inner_exception or error).__name__
        # A connection that was never made has carried nothing out.
        unknown = writes and not isinstance(error.inner_exception, aiohttp.ClientConnectorError)
        return StoreUnavailableError(f"{endpoint} did not answer ({cause}).", unknown)

    def _check(self, status: int, headers: Any, *, writes: bool) -> None:  # noqa: ANN401 - azure-core's mapping
        """Raise what it means that the service failed or refused the credentials."""
        endpoint = self._account.endpoint
        if status in _PASSING:
            raise StoreUnavailableError(f"{endpoint} answered with status {status}.", writes)
        if status in _FORBIDDEN:
            code = headers.get("x-ms-error-code", "")
            raise StoreUrlError(f"{endpoint} refused the credentials ({status} {code}".rstrip() + ").")


class _Transport(AioHttpTransport):  # type: ignore[misc]  # loaded late, so it shows no type
    """Reads each answer to its end, so that one that breaks off is a failure which can be repeated.

    "Streamed" answers are asked for all the same: the client decodes the others by their declared type, and
    knows none for the answer to a transaction.
    """

    async def send(self, request: HttpRequest, **options: object) -> AsyncHttpResponse:
        """Send a request and read the answer."""
        answer: AsyncHttpResponse = await super().send(request, **{**options, "stream": False})
        return answer


class _Pieces:
    """A large body, from its beginning each time that it is sent: the client repeats no files."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), _PIECE):
            yield self._body[start : start + _PIECE]
