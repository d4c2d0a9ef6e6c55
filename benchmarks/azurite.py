"""Azurite for the contenders that need a table service: one for each measurement, in memory, on a port of its own."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

_START_SECONDS = 60
_END_SECONDS = 10
_ROOT = Path(__file__).parent.parent


def azurite_binary() -> str | None:
    """Return the program: what AZURITE_BIN names, the one of this repository, or one on the path."""
    candidates = (
        os.environ.get("AZURITE_BIN", ""),
        str(_ROOT / "node_modules" / ".bin" / "azurite-table"),
        "azurite-table",
    )
    return next((found for name in candidates if name and (found := shutil.which(name))), None)


class Azurite:
    """A table service that runs until it is stopped."""

    def __init__(self, folder: Path) -> None:
        binary = azurite_binary()
        if binary is None:
            message = "Azurite is not installed: run `make setup-test`, or name the program in AZURITE_BIN."
            raise FileNotFoundError(message)
        self.port = _free_port()
        folder.mkdir(parents=True, exist_ok=True)
        command = [binary, "--tableHost", "127.0.0.1", "--tablePort", str(self.port), "--silent"]
        command += ["--skipApiVersionCheck", "--disableTelemetry", "--inMemoryPersistence"]
        self._log = folder / "azurite.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._wait()

    @property
    def url(self) -> str:
        """The store url."""
        return f"azurite://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._answers():
                return
            time.sleep(0.05)
        self.stop()
        message = f"Azurite did not start:\n{self._log.read_text(errors='replace')}"
        raise ChildProcessError(message)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)
        try:
            connection.request("GET", "/devstoreaccount1/Tables")
            connection.getresponse().read()
        except OSError:
            return False
        finally:
            connection.close()
        return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
