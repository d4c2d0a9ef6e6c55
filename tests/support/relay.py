"""A relay in front of a table service: passes on what it gets, and keeps what the client sent."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

PIECE = 64 * 1024


class Relay:
    """Passes on bytes between clients and a service."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        self.endpoint = ""
        """The service's endpoint by way of the relay."""
        self.connections = 0
        self.sent = bytearray()
        """What clients sent, over all connections."""
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def listen_at(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}{self._path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        answers, requests = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, requests}
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        await asyncio.gather(self._pass_on(reader, requests, self.sent), self._pass_on(answers, writer))

    async def hang_up(self) -> None:
        """Close all connections: a client may have left one open."""
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pass_on(self, reader, writer, kept=None) -> None:
        try:
            while piece := await reader.read(PIECE):
                if kept is not None:
                    kept += piece
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


@contextmanager
def relayed(endpoint: str, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Iterator[Relay]:
    """Let a relay stand in front of a service, in the event loop in which `run` runs."""
    relay = Relay(endpoint)
    server = run(asyncio.start_server(relay.serve, "127.0.0.1", 0))
    relay.listen_at(server.sockets[0].getsockname()[1])

    async def stop():
        server.close()
        await relay.hang_up()
        await server.wait_closed()

    try:
        yield relay
    finally:
        run(stop())
