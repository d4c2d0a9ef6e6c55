"""Azurite, the emulator of Azure Storage, for the tests that need its tables or its blobs.

Each worker of a test run starts its own, in memory, on a port of its own, and ends it; no other process is touched.
"""

import fcntl
import http.client
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
START_SECONDS = 60
ATTEMPTS = 5


def azurite_binary(service: str) -> str | None:
    """Return the program: what AZURITE_BIN names or is beside that, of this repository, or one on the path."""
    candidates = (
        os.environ.get("AZURITE_BIN", "").replace("table", service),
        str(REPOSITORY / "node_modules" / ".bin" / f"azurite-{service}"),
        f"azurite-{service}",
    )
    return next((found for name in candidates if name and (found := shutil.which(name))), None)


def needed_azurite(service: str) -> str:
    """Return the program. Where it is not installed, a test is skipped, and fails in continuous integration."""
    binary = azurite_binary(service)
    if binary is None:
        message = "Azurite is not installed: run `make setup-test`, or name the program in AZURITE_BIN."
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return binary


@contextmanager
def running_azurite(service: str) -> Iterator[str]:
    """Run the service `table` or `blob`; give its host and port."""
    binary = needed_azurite(service)
    with tempfile.TemporaryDirectory(prefix="azurite-") as folder:
        for _ in range(ATTEMPTS):
            with ExitStack() as stack:
                with _one_at_a_time():
                    port = free_port()
                    process = stack.enter_context(_process(binary, service, port, Path(folder)))
                    is_there = answers(process, port)
                if is_there:
                    yield f"127.0.0.1:{port}"
                    return
        log = (Path(folder) / "log").read_text(errors="replace")
        pytest.fail(f"Azurite did not start:\n{log}")


@pytest.fixture(scope="session")
def azurite_url() -> Iterator[str]:
    """Give the store url of an Azurite that runs for the whole test session."""
    with running_azurite("table") as authority:
        yield f"azurite://{authority}"


@pytest.fixture(scope="session")
def azurite_blobs() -> Iterator[str]:
    """Give host and port of a service of blobs that runs for the whole test session."""
    with running_azurite("blob") as authority:
        yield authority


@contextmanager
def _process(binary: str, service: str, port: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [binary, f"--{service}Host", "127.0.0.1", f"--{service}Port", str(port), "--silent"]
    command += ["--skipApiVersionCheck", "--disableTelemetry", "--inMemoryPersistence"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Let no other worker start its own meanwhile: both could find the same port free."""
    with Path(tempfile.gettempdir(), f"azurite-{os.getuid()}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def wait_for(
    answers: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, seconds: int = START_SECONDS
) -> None:
    """Wait until a server answers. Fails the test, with the end of the log, if the server ends or is too slow."""
    deadline = time.monotonic() + seconds
    while not answers():
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"{process.args!r} did not start:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the service answers; False when it ended, so that another port can be tried."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        try:
            connection.request("GET", "/devstoreaccount1/Tables")
            connection.getresponse().read()
        except OSError:
            time.sleep(0.05)
        else:
            return process.poll() is None
        finally:
            connection.close()
    return False
