"""A server that speaks the protocol of Amazon S3, for the tests of documents and outcomes there: that of moto."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest

from tests.plugins.azurite import free_port, wait_for

BUCKET = "documents"
SIGNED = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="session")
def s3_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give host and port of a server with one bucket, which runs for the whole test session."""
    authority = f"127.0.0.1:{free_port()}"
    host, _, port = authority.partition(":")
    log = tmp_path_factory.mktemp("s3") / "log"
    with log.open("wb") as said:
        command = [sys.executable, "-m", "moto.server", "-H", host, "-p", port]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        wait_for(lambda: _made_bucket(f"http://{authority}/{BUCKET}"), process, log)
        yield authority
    finally:
        process.terminate()
        process.wait(timeout=10)


@pytest.fixture
def s3_url(s3_authority: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the url of the bucket, with what signs requests in the environment."""
    for name, value in SIGNED.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/papers?endpoint_override={s3_authority}&scheme=http&region=us-east-1"


def _made_bucket(url: str) -> bool:
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=10).close()
    except OSError:
        return False
    return True
