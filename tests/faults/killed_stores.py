"""Servers that are killed and started again, while a batch goes on with them: the batch ends as it should.

PostgreSQL has on its disk what it has acknowledged: it is killed with all its processes while batches go on.

Azurite keeps what it has acknowledged in memory, and writes it to its file some seconds later. A store that a batch may
rely on does not forget: so all others are stopped, until the file has what was acknowledged, before Azurite is killed.
Requests that are under way then get no answer, or their answer is lost.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.plugins.azurite import answers, free_port, needed_azurite
from tests.support.campaigns import children, wait_until
from tests.support.servers import PostgresServer, postgresql_server

_SAVE_SECONDS = 6.0
"""A little more than the interval at which Azurite writes its file, if anything has changed."""
_QUIET_SECONDS = 0.3


class DurableAzurite:
    name = "Azurite itself"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._file = folder / "__azurite_db_table__.json"
        self._process = self._started()

    @property
    def url(self) -> str:
        return f"azurite://127.0.0.1:{self._port}"

    def wait_until_saved(self) -> None:
        begun, before = time.monotonic(), self._written()
        while time.monotonic() - begun < _SAVE_SECONDS:
            time.sleep(_QUIET_SECONDS)
            if (now := self._written()) != before:
                time.sleep(_QUIET_SECONDS)
                if self._written() == now:
                    return

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def start(self) -> None:
        self._process = self._started()

    def _written(self) -> int:
        return self._file.stat().st_mtime_ns if self._file.exists() else 0

    def _started(self) -> subprocess.Popen[bytes]:
        command = [needed_azurite("table"), "--tableHost", "127.0.0.1", "--tablePort", str(self._port)]
        command += ["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--location", "."]
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        if not answers(process, self._port):
            process.kill()
            raise RuntimeError((self._folder / "log").read_text(errors="replace")[-1000:])
        return process


class KilledPostgres:
    """A PostgreSQL all of whose processes are killed at once."""

    name = "PostgreSQL itself"

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.url = server.url

    def wait_until_saved(self) -> None:
        pass

    def kill(self) -> None:
        postmaster = int((self._server.folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGSTOP)  # it would start others
        processes = [postmaster, *children(postmaster)]
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not any(map(_is_running, processes)), 60, pause=0.01)

    def start(self) -> None:
        self._server.control("pg_ctl", "start", "-w", "-l", str(self._server.folder / "log"))


def _is_running(pid: int) -> bool:
    with suppress(ChildProcessError):  # orphans are children of the campaign
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    return Path(f"/proc/{pid}").exists()


KilledStore = DurableAzurite | KilledPostgres


@contextmanager
def killed_postgresql() -> Iterator[KilledPostgres]:
    with postgresql_server() as server:
        yield KilledPostgres(server)


@contextmanager
def durable_azurite() -> Iterator[DurableAzurite]:
    with tempfile.TemporaryDirectory(prefix="azurite-") as folder:
        azurite = DurableAzurite(Path(folder))
        try:
            yield azurite
        finally:
            azurite.kill()
