"""A proxy in front of a table service that loses transactions, or the answers to them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum

import aiohttp
from yarl import URL

_FORWARDED = (
    "authorization",
    "content-type",
    "date",
    "x-ms-date",
    "x-ms-version",
    "accept",
    "dataserviceversion",
    "if-match",
    "prefer",
)
_BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"


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
    """Forwards requests; the transactions meet the faults, one after the other, and then none."""

    def __init__(self, target: str) -> None:
        self.url = ""
        self.faults: list[Fault] = []
        self.transactions = 0
        self._target = target

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve on a free port of this machine."""
        async with aiohttp.ClientSession(auto_decompress=False) as self._session:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.url = f"azurite://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield
            server.close()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                answer = await self._answer(head, body)
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: list[str], body: bytes) -> bytes | None:
        method, path, _ = head[0].split(" ")
        fault = None
        if method != "GET" and not path.endswith("/Tables"):
            self.transactions += 1
            fault = self.faults.pop(0) if self.faults else None
        if fault is None or fault.takes_effect:
            answer = await self._forward(method, path, head[1:], body)
        if fault is None:
            return answer
        return _BUSY if fault in (Fault.BUSY_BEFORE, Fault.BUSY_AFTER) else None

    async def _forward(self, method: str, path: str, lines: list[str], body: bytes) -> bytes:
        pairs = [line.split(": ", 1) for line in lines if line]
        headers = {name: value for name, value in pairs if name.lower() in _FORWARDED}
        url = self._target.replace("azurite:", "http:", 1) + path
        async with self._session.request(
            method, URL(url, encoded=True), headers=headers, data=body or None
        ) as response:
            content = await response.read()
            kept = [
                f"{name}: {value}"
                for name, value in response.headers.items()
                if name.lower() not in ("content-length", "transfer-encoding", "connection")
            ]
            first = [f"HTTP/1.1 {response.status} {response.reason}", f"Content-Length: {len(content)}"]
            return "\r\n".join([*first, *kept, "", ""]).encode() + content
