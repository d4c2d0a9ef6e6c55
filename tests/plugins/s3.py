"""A server that speaks the protocol of Amazon S3, for the tests of documents there: s3rver, of package.json."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.plugins.azurite import REPOSITORY, free_port

BUCKET = "documents"
START_SECONDS = 60
SIGNED = {
    "AWS_ACCESS_KEY_ID": "S3RVER",
    "AWS_SECRET_ACCESS_KEY": "S3RVER",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_REQUEST_CHECKSUM_CALCULATION": "WHEN_REQUIRED",  # it does not know the trailers that checksums come in
}


@pytest.fixture(scope="session")
def s3_authority() -> Iterator[str]:
    """Give host and port of a server with one bucket, which runs for the whole test session."""
    binary = os.environ.get("S3RVER_BIN") or shutil.which(
        "s3rver", path=os.pathsep.join([str(REPOSITORY / "node_modules" / ".bin"), os.environ["PATH"]])
    )
    if binary is None:
        pytest.fail("s3rver is not installed: run `make setup-test`, or name the program in S3RVER_BIN.")
    with tempfile.TemporaryDirectory(prefix="s3rver-") as folder, _process(binary, Path(folder)) as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture
def s3_url(s3_authority: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the url of the bucket, with what signs requests in the environment."""
    for name, value in SIGNED.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/papers?endpoint_override={s3_authority}&scheme=http&region=us-east-1"


@contextmanager
def _process(binary: str, folder: Path) -> Iterator[int]:
    port = free_port()
    command = [binary, "-d", str(folder), "-a", "127.0.0.1", "-p", str(port), "--configure-bucket", BUCKET]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--silent"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _wait_for(process, port, folder / "log")
        yield port
    finally:
        process.terminate()
        process.wait(timeout=10)


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"s3rver did not start:\n{log.read_text(errors='replace')}")
