"""Redis servers for the tests of delivery keys: each has a folder and a port of its own, and can be killed.

A server that is not installed fails the test: what cannot be run is not tested.
"""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.plugins.azurite import REPOSITORY, free_port, wait_for

IN_MEMORY = ("--appendonly", "no")
ON_DISK = ("--appendonly", "yes", "--appendfsync", "always")


@dataclass
class RedisServer:
    """A server on the loopback interface; what it appends to its log survives it."""

    folder: Path
    options: tuple[str, ...] = ON_DISK
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start the server on the data that is there, and wait until it answers."""
        command = [redis_binary(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--dir", str(self.folder), *self.options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(self._answers, self.process, self.folder / "log")

    def kill(self) -> None:
        """Kill the server as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64) == b"+PONG\r\n"
        except OSError:
            return False


def redis_program() -> str | None:
    """Return the program of this repository, or one on the path."""
    return shutil.which(REPOSITORY / ".make" / "redis" / "redis-server") or shutil.which("redis-server")


def redis_binary() -> str:
    """Return the program. Fails a test if there is none."""
    return redis_program() or pytest.fail("redis-server is not installed: run `make setup-servers`.")


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """Give a server that appends each change to its log before it answers."""
    yield from _running(tmp_path, ON_DISK)


@pytest.fixture
def forgetful_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """Give a server that keeps all in memory."""
    yield from _running(tmp_path, IN_MEMORY)


def _running(tmp_path: Path, options: tuple[str, ...]) -> Iterator[RedisServer]:
    folder = tmp_path / "redis"
    folder.mkdir()
    server = RedisServer(folder, options)
    server.start()
    try:
        yield server
    finally:
        server.kill()
