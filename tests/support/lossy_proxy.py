"""A proxy in front of a table service that records requests, and loses transactions or the answers to them."""

import io
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import Enum
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

_FORWARDED = (
    *("authorization", "content-type", "date", "x-ms-date", "x-ms-version", "accept", "dataserviceversion"),
    *("if-match", "prefer"),
)
_OF_CONNECTION = ("content-length", "transfer-encoding", "connection")


class Fault(Enum):
    """What happens to a transaction: it is lost, or only its answer; the client sees a 503 or a lost connection."""

    BUSY_BEFORE = "busy before"
    BUSY_AFTER = "busy after"
    HANG_UP_BEFORE = "hang up before"
    HANG_UP_AFTER = "hang up after"

    @property
    def takes_effect(self) -> bool:
        """Whether the transaction reaches the service."""
        return self in (Fault.BUSY_AFTER, Fault.HANG_UP_AFTER)


class LossyProxy:
    """Forwards requests. Each transaction meets the next fault of `faults`, or none if there is none left."""

    def __init__(self, target: str) -> None:
        self.url = self.endpoint = ""
        self.faults: list[Fault] = []
        self.transactions = 0
        self.sent = b""
        """The paths and headers of all requests."""
        self._target = URL(target.replace("azurite:", "http:", 1))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(auto_decompress=False) as self._session:
            runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"azurite://127.0.0.1:{runner.addresses[0][1]}"
            self.endpoint = self.url.replace("azurite:", "http:") + self._target.path.rstrip("/")
            yield
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        headers = [f"{name}: {value}" for name, value in request.headers.items()]
        self.sent += "\r\n".join([request.raw_path, *headers, ""]).encode()
        fault = None
        if request.method != "GET" and not request.path.endswith("/Tables"):
            self.transactions += 1
            fault = self.faults.pop(0) if self.faults else None
        if fault is None or fault.takes_effect:
            answer = await self._forward(request)
        if fault is None:
            return answer
        if fault in (Fault.HANG_UP_BEFORE, Fault.HANG_UP_AFTER) and request.transport is not None:
            request.transport.abort()
        return web.Response(status=503, reason="Busy")

    async def _forward(self, request: web.BaseRequest) -> web.Response:
        headers = {name: value for name, value in request.headers.items() if name.lower() in _FORWARDED}
        url = URL(f"{self._target.origin()}{request.raw_path}", encoded=True)
        body = await request.content.read()  # however large
        data = io.BytesIO(body) if body else None  # aiohttp warns of a large body of bytes
        async with self._session.request(request.method, url, headers=headers, data=data) as found:
            kept = {
                name: value for name, value in found.headers.items() if name.lower() not in _OF_CONNECTION
            }
            return web.Response(status=found.status, headers=kept, body=await found.read())


@contextmanager
def relayed(endpoint: str, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Iterator[LossyProxy]:
    """Context manager that runs a proxy in front of a service, in the event loop of `run`."""
    proxy = LossyProxy(endpoint)
    running = proxy.running()
    run(running.__aenter__())
    try:
        yield proxy
    finally:
        run(running.__aexit__(None, None, None))
