"""The receiver: a web server in a process of its own, which counts how often it was sent each message.

It counts a message when it has read the request, a moment before it answers, so that a sender may die before, between
and after. Between two messages it keeps the connection.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized

_CONTEXT = get_context("spawn")
_ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver that runs: its port, and what it has counted so far."""

    port: int
    _received: Synchronized[int]
    _asking: Connection

    @property
    def received(self) -> int:
        """How many requests it has read."""
        return self._received.value

    def counts(self) -> Counter[str]:
        """Return how often each message was received, and let it begin anew."""
        self._asking.send("counts")
        found: Counter[str] = self._asking.recv()
        return found


@contextmanager
def running_receiver() -> Iterator[Receiver]:
    """Run a receiver on a free port of this machine."""
    received = _CONTEXT.Value("q", 0, lock=False)
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_serve, args=(received, theirs), daemon=True)
    process.start()
    try:
        yield Receiver(ours.recv(), received, ours)
    finally:
        process.kill()
        process.join()


def _serve(received: Synchronized[int], asked: Connection) -> None:
    asyncio.run(_Server(received, asked).run())


class _Server:
    def __init__(self, received: Synchronized[int], asked: Connection) -> None:
        self._received = received
        self._asked = asked
        self._counts: Counter[str] = Counter()

    async def run(self) -> None:
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        asyncio.get_running_loop().add_reader(self._asked.fileno(), self._tell)
        self._asked.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await asyncio.sleep(_SECONDS)
                self._counts[head.split(b" ", 2)[1].decode().strip("/")] += 1
                self._received.value += 1
                await asyncio.sleep(_SECONDS)
                writer.write(_ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _tell(self) -> None:
        self._asked.recv()
        self._asked.send(self._counts)
        self._counts = Counter()
