"""Azurite, PostgreSQL and Redis for one run, on free ports of this machine.

Their data is in a temporary folder. `make setup-servers` installs them. `python -m tests.support.servers` runs the
sample of orders on them, and with `--live` the live shop on a broker of Kafka.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from runtime.documents import open_place
from samples.orders.__main__ import FOLDER, Places, run, run_live
from tests.plugins.azurite import azurite_binary, free_port, running_azurite
from tests.plugins.redis import RedisServer, redis_program
from tests.support.campaigns import ROOT

_CONTAINER = "documents"


class MissingServersError(Exception):
    """Raised when servers are not installed, with the command that installs them."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"Not installed: {', '.join(names)}. Run `make setup-servers` in the clone.")


@contextmanager
def running_servers() -> Iterator[Places]:
    """Start all servers, yield their URLs, and stop them. Raises `MissingServersError`."""
    os.environ["PATH"] = os.pathsep.join([str(ROOT / ".make" / "node"), os.environ.get("PATH", os.defpath)])
    found = {
        "Azurite": azurite_binary("table"),
        "PostgreSQL": postgresql_programs(),
        "Redis": redis_program(),
    }
    if missing := [name for name, program in found.items() if program is None]:
        raise MissingServersError(missing)
    with ExitStack() as stack:
        redis = RedisServer(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="orders-"))))
        tables, blobs = (stack.enter_context(running_azurite(each)) for each in ("table", "blob"))
        documents = f"azurite://{blobs}/{_CONTAINER}/orders"
        open_place(documents).files.create_dir(_CONTAINER)
        stack.callback(redis.kill)
        redis.start()
        yield Places(
            store=f"azurite://{tables}",
            documents=documents,
            warehouse=stack.enter_context(postgresql()),
            keys=redis.url,
        )


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
    programs, port = postgresql_programs(), free_port()
    if programs is None:
        raise MissingServersError(["PostgreSQL"])
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    with tempfile.TemporaryDirectory(prefix="postgresql-", ignore_cleanup_errors=True) as folder:
        if user:
            shutil.chown(folder, "nobody", "nogroup")

        def control(program: str, *arguments: str) -> None:
            _run([f"{programs}/{program}", "-D", f"{folder}/data", *arguments], folder, user)

        control("initdb", "-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8")
        place = "listen_addresses = '127.0.0.1'", f"port = {port}", f"unix_socket_directories = '{folder}'"
        with Path(folder, "data", "postgresql.conf").open("a") as conf:
            conf.write("\n".join(["", *place, "fsync = off", *settings, ""]))
        control("pg_ctl", "start", "-w", "-l", f"{folder}/log")
        try:
            yield PostgresServer(f"postgresql://postgres@127.0.0.1:{port}/postgres", Path(folder), control)
        finally:
            control("pg_ctl", "stop", "-m", "fast")


def postgresql_programs() -> str | None:
    """Return the folder of the programs, from the package pgserver or Debian's."""
    package = find_spec("pgserver")
    places = (package.submodule_search_locations or []) if package else []
    folders = [Path(each, "pginstall", "bin") for each in places]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((str(folder) for folder in folders if (folder / "initdb").exists()), None)


def _run(command: Sequence[str], folder: str, user: Mapping[str, Any]) -> None:
    """Run a command to its end. The output goes to a file, because child processes would keep a pipe open."""
    with Path(folder, "said").open("w+") as said:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False, **user
        )
        if done.returncode:
            said.seek(0)
            raise ChildProcessError(f"{command[0]} failed:\n{said.read()}")


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
