"""What stands before and beside a PostgreSQL server in tests: a standby, pgbouncer, a proxy that loses answers."""

import asyncio
import os
import re
import struct
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from tests.plugins.azurite import free_port
from tests.support.campaigns import ROOT, wait_until
from tests.support.lossy_proxy import Fault
from tests.support.servers import PostgresServer

PGBOUNCER = ROOT / ".make" / "pgbouncer" / "pgbouncer"
_PATIENCE_SECONDS = 30


def administer(url: str, *statements: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    """Run a copy of a server that follows it, once it does. A commit of the primary waits for it."""
    port, data = free_port(), str(primary.folder / "standby")

    def control(program: str, *arguments: str) -> None:
        primary.control(program, "-D", data, *arguments)

    source = urlsplit(primary.url)
    control("pg_basebackup", "-h", str(source.hostname), "-p", str(source.port), "-U", "postgres", "-R")
    control("pg_ctl", "start", "-w", "-l", f"{data}.log", "-o", f"-p {port}")
    try:
        administer(primary.url, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        until(primary.url, "SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync'")
        yield PostgresServer(f"postgresql://postgres@127.0.0.1:{port}/postgres", Path(data), control)
    finally:
        control("pg_ctl", "stop", "-m", "fast")


def until(url: str, question: str) -> None:
    """Wait until a query returns true."""
    if not wait_until(lambda: administer(url, question) == [(True,)], _PATIENCE_SECONDS, pause=0.05):
        raise TimeoutError(question)


@contextmanager
def pgbouncer(url: str, folder: Path, *, connections: int = 2) -> Iterator[str]:
    """Run pgbouncer in transaction mode before a server, with so few connections; give the url of the database."""
    parts, port = urlsplit(url), free_port()
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\npostgres = host=127.0.0.1 port={parts.port} user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"pool_mode = transaction\ndefault_pool_size = {connections}\n"
    )
    (folder / "pgbouncer.ini").chmod(0o644)  # another user opens it anew, under whatever umask it was written
    as_other = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    with (folder / "log").open("wb") as log, (folder / "pgbouncer.ini").open() as settings:
        # It may not enter the folder of the test; it is no program for root.
        given: dict[str, Any] = {"stdin": settings, "stdout": log, "stderr": log, "cwd": "/", **as_other}
        process = subprocess.Popen([PGBOUNCER, "/dev/stdin"], **given)
    through = f"postgresql://postgres@127.0.0.1:{port}/postgres"

    def answers() -> bool:
        with suppress(psycopg.OperationalError):
            return bool(administer(through, "SELECT 1"))
        return process.poll() is not None

    try:
        if not wait_until(answers, _PATIENCE_SECONDS, pause=0.05) or process.poll() is not None:
            raise ChildProcessError((folder / "log").read_text())
        yield through
    finally:
        process.terminate()
        process.wait()


_ENCRYPTION_REQUESTS = (80877103, 80877104)
_WRITES = re.compile(rb"INSERT INTO|UPDATE \S+ SET|DELETE FROM")


def _error(severity: bytes, state: bytes) -> bytes:
    fields = b"S" + severity + b"\0V" + severity + b"\0C" + state + b"\0Mplayed\0\0"
    return b"E" + struct.pack("!I", 4 + len(fields)) + fields


class PostgresProxy:
    """Passes on messages to a server; the writes meet the faults, one after the other, and then none.

    A server that is busy before is one that reports a serialisation failure; busy after, one that is shut down when the
    commit is done, before it has answered.
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self.url = ""
        self.faults: list[Fault | None] = []
        self.transactions = 0
        self.round_trips = 0
        """How often somebody has waited for an answer."""
        self._address = parts.hostname, parts.port
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"postgresql://postgres@127.0.0.1:{server.sockets[0].getsockname()[1]}/postgres"
        async with server:
            yield
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        answers, requests = await asyncio.open_connection(*self._address)
        client = _Client(reader, writer, answers, requests)
        try:
            await client.begin()
            passing_on = asyncio.ensure_future(client.pass_on_answers())
            while request := await client.request():
                self.round_trips += not request.startswith(b"H")  # a flush after the end of a pipeline
                fault = None
                if _WRITES.search(request):
                    self.transactions += 1
                    fault = self.faults.pop(0) if self.faults else None
                await client.carry_out(request, fault)
            passing_on.cancel()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            for each in (writer, requests):
                each.transport.abort()


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)


@dataclass
class _Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    answers: asyncio.StreamReader
    requests: asyncio.StreamWriter
    is_mute: bool = False
    is_ready: asyncio.Event = field(default_factory=asyncio.Event)

    async def begin(self) -> None:
        """Pass on the first message, and answer those before it: nothing is encrypted."""
        while True:
            head = await self.reader.readexactly(8)
            length, code = struct.unpack("!II", head)
            if code not in _ENCRYPTION_REQUESTS:
                self.requests.write(head + await self.reader.readexactly(length - 8))
                return
            self.writer.write(b"N")

    async def request(self) -> bytes:
        """Return the messages up to one after which the client waits, nothing at the end."""
        found = b""
        while True:
            message = await _message(self.reader)
            found += message
            if message[:1] == b"X":
                self.requests.write(found)
                return b""
            if message[:1] in (b"S", b"Q", b"H"):
                return found

    async def carry_out(self, request: bytes, fault: Fault | None) -> None:
        """Pass on a request, or do to it what the fault says. Raises `ConnectionError` if that ends it."""
        if fault is Fault.BUSY_BEFORE:
            self.writer.write(_error(b"ERROR", b"40001") + b"Z\0\0\0\5I")
            return
        if fault is Fault.HANG_UP_BEFORE:
            raise ConnectionError
        self.is_mute = fault is not None
        self.is_ready.clear()
        self.requests.write(request)
        if fault is None:
            return
        await self.is_ready.wait()
        if fault is Fault.BUSY_AFTER:
            self.writer.write(_error(b"FATAL", b"57P01"))
            await self.writer.drain()
            self.writer.close()
            await self.writer.wait_closed()
        raise ConnectionError

    async def pass_on_answers(self) -> None:
        """Pass on what the server says, unless its answer is to be lost."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                message = await _message(self.answers)
                if not self.is_mute:
                    self.writer.write(message)
                if message[:1] == b"Z":
                    self.is_ready.set()
        self.is_ready.set()
        self.writer.close()
