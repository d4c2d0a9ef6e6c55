"""Azurite, PostgreSQL and Redis for one run, on free ports of this machine.

Their data is in a temporary folder. `make setup-servers` installs them. `python -m tests.support.servers` runs the
sample of orders on them, and with `--live` the live shop on a broker of Kafka.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from runtime.documents import open_place
from samples.orders.__main__ import FOLDER, Places, run, run_live

_ROOT = Path(__file__).parents[2]
_START_SECONDS = 60
_END_SECONDS = 30
_CONTAINER = "documents"


class MissingServersError(Exception):
    """Raised when servers are not installed, with the command that installs them."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"Not installed: {', '.join(names)}. Run `make setup-servers` in the clone.")


@contextmanager
def running_servers() -> Iterator[Places]:
    """Start all servers, yield their URLs, and stop them. Raises `MissingServersError`."""
    programs = {name: find() for name, find in _PROGRAMS.items()}
    missing = [name for name, program in programs.items() if program is None]
    if missing:
        raise MissingServersError(missing)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="orders-")))
        tables, blobs = (stack.enter_context(azurite(each, folder)) for each in ("table", "blob"))
        documents = f"azurite://{blobs}/{_CONTAINER}/orders"
        open_place(documents).files.create_dir(_CONTAINER)
        yield Places(
            store=f"azurite://{tables}",
            documents=documents,
            warehouse=stack.enter_context(postgresql()),
            keys=stack.enter_context(redis(folder)),
        )


@contextmanager
def azurite(service: str, folder: Path) -> Iterator[str]:
    """Run Azurite's service `table` or `blob`; yield host and port."""
    port = free_port()
    command = [_needed("Azurite", azurite_program(service)), f"--{service}Host", "127.0.0.1"]
    command += [f"--{service}Port", str(port), "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    command += ["--inMemoryPersistence"]
    path = os.pathsep.join([str(_ROOT / ".make" / "node"), os.environ.get("PATH", os.defpath)])
    with _server(command, port, folder / f"azurite-{service}.log", {**os.environ, "PATH": path}):
        yield f"127.0.0.1:{port}"


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """Run Redis with an fsync after each change; yield its URL."""
    port = free_port()
    command = [_needed("Redis", redis_program()), "--bind", "127.0.0.1", "--port", str(port), "--save", ""]
    command += ["--dir", str(folder), "--appendonly", "yes", "--appendfsync", "always"]
    with _server(command, port, folder / "redis.log", os.environ):
        yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def postgresql() -> Iterator[str]:
    """Run PostgreSQL, as another user if this one is root; yield the URL of its database."""
    with postgresql_server() as server:
        yield server.url


class PostgresServer(NamedTuple):
    """A running PostgreSQL: the URL of its database, its folder, and a function that runs one of its programs."""

    url: str
    folder: Path
    control: Callable[..., None]


@contextmanager
def postgresql_server(*settings: str) -> Iterator[PostgresServer]:
    """Run PostgreSQL with additional settings, such as `fsync = on`."""
    programs, port = Path(_needed("PostgreSQL", postgresql_programs())), free_port()
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    with tempfile.TemporaryDirectory(prefix="postgresql-", ignore_cleanup_errors=True) as folder:
        if user:
            shutil.chown(folder, "nobody", "nogroup")

        def control(program: str, *arguments: str) -> None:
            _run([str(programs / program), "-D", f"{folder}/data", *arguments], folder, user)

        control("initdb", "-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8")
        place = "listen_addresses = '127.0.0.1'", f"port = {port}", f"unix_socket_directories = '{folder}'"
        with Path(folder, "data", "postgresql.conf").open("a") as conf:
            conf.write("\n".join(["", *place, "fsync = off", *settings, ""]))
        control("pg_ctl", "start", "-w", "-l", f"{folder}/log")
        try:
            yield PostgresServer(f"postgresql://postgres@127.0.0.1:{port}/postgres", Path(folder), control)
        finally:
            control("pg_ctl", "stop", "-m", "fast")


def azurite_program(service: str = "table") -> str | None:
    """Return the path of a service's program, from the clone or `PATH`."""
    own = _ROOT / "node_modules" / ".bin" / f"azurite-{service}"
    return shutil.which(own) or shutil.which(f"azurite-{service}")


def redis_program() -> str | None:
    return shutil.which(_ROOT / ".make" / "redis" / "redis-server") or shutil.which("redis-server")


def postgresql_programs() -> str | None:
    """Return the folder of the programs, from the package pgserver or Debian's."""
    package = find_spec("pgserver")
    places = (package.submodule_search_locations or []) if package else []
    folders = [Path(each, "pginstall", "bin") for each in places]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((str(folder) for folder in folders if (folder / "initdb").exists()), None)


_PROGRAMS = {"Azurite": azurite_program, "PostgreSQL": postgresql_programs, "Redis": redis_program}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _needed(name: str, program: str | None) -> str:
    if program is None:
        raise MissingServersError([name])
    return program


def _run(command: Sequence[str], folder: str, user: Mapping[str, Any]) -> None:
    """Run a command to its end. The output goes to a file, because child processes would keep a pipe open."""
    with Path(folder, "said").open("w+") as said:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False, **user
        )
        if done.returncode:
            said.seek(0)
            raise ChildProcessError(f"{command[0]} failed:\n{said.read()}")


@contextmanager
def _server(command: Sequence[str], port: int, log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Run a server in the foreground; yield once it accepts connections, and stop it."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, cwd=log.parent, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment
        )
    try:
        _wait(process, port, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise ChildProcessError(f"{process.args!r} did not start:\n{log.read_text(errors='replace')}")


def main() -> None:
    """Run the sample of orders on servers that end with it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the servers, too
    is_live = sys.argv[1:] == ["--live"]
    folder = FOLDER / ("live-servers" if is_live else "servers")
    shutil.rmtree(folder, ignore_errors=True)
    if is_live:
        from tests.plugins.kafka import running_kafka

        with running_kafka() as kafka:
            run_live(f"kafka://{kafka.address}", folder)
        return
    try:
        with running_servers() as places:
            run(places, folder)
    except MissingServersError as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    main()
