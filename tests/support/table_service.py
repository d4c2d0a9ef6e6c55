"""A table service that is played by a small HTTP server on this machine, and the answers that it gives."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

HANG_UP = None

Answer = tuple[int, dict[str, str], bytes]

CREATED: Answer = (204, {}, b"")
WRITTEN: Answer = (204, {"ETag": 'W/"one"'}, b"")
ACCEPTED: Answer = (202, {}, b'--c\r\n\r\nHTTP/1.1 204 No Content\r\nETag: W/"one"\r\n\r\n\r\n--c--\r\n')


def error(status, code, message="0:No."):
    body = json.dumps(
        {"odata.error": {"code": code, "message": {"lang": "en-US", "value": message}}}
    ).encode()
    return (status, {"x-ms-error-code": code}, body)


def refused(status, code, message="0:No."):
    return (
        202,
        {},
        f"--c\r\n\r\nHTTP/1.1 {status} No\r\n\r\n".encode()
        + error(status, code, message)[2]
        + b"\r\n--c--\r\n",
    )


def broken_off(answer):
    status, headers, body = answer
    return (status, {**headers, "Content-Length": str(len(body))}, body[:-5])


def rows(*entities, **continuation):
    headers = {f"x-ms-continuation-{name}": value for name, value in continuation.items()}
    return (200, headers, json.dumps({"value": list(entities)}).encode())


def row(found):
    return (200, {}, json.dumps(found).encode())


def entity(row_key):
    return {
        "odata.etag": 'W/"e"',
        "PartitionKey": "p",
        "RowKey": row_key,
        "Timestamp": "2024-01-01T00:00:00Z",
    }


class Service:
    """Gives its answers one after the other, and keeps what it was asked."""

    def __init__(self) -> None:
        self.port = 0
        self.answers: list[Answer | None] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.connections = 0

    def answer(self, request: str) -> Answer | None:
        """Return the answer to a request, given by its first line; None hangs up."""
        return self.answers.pop(0)

    async def serve(self, reader, writer) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {
                    name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])
                }
                await reader.readexactly(int(headers.get("content-length", 0)))
                self.requests.append((head[0], headers))
                answer = self.answer(head[0])
                if answer is HANG_UP:
                    return
                status, extra, body = answer
                headers = {"Content-Length": str(len(body)), **extra}
                lines = [f"HTTP/1.1 {status} Status"]
                lines += [f"{name}: {value}" for name, value in headers.items()]
                writer.write("\r\n".join([*lines, "", ""]).encode() + body)
                await writer.drain()
                if int(headers["Content-Length"]) > len(body):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@contextmanager
def served(service: Service, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Iterator[Service]:
    """Let a service run on a free port, in the event loop in which `run` runs."""
    server = run(asyncio.start_server(service.serve, "127.0.0.1", 0))
    service.port = server.sockets[0].getsockname()[1]

    async def stop():
        server.close()
        await server.wait_closed()

    try:
        yield service
    finally:
        run(stop())
